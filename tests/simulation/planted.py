"""Bugs to be found: each is planted in the product for one run, and a run of some seeds must end with a breach that
makes sense for it.

Responsible for the effect of each bug, for the breaches that count as finding it, and for the seed with which `make
test` finds it quickly. Not responsible for runs (cluster_run.py). One sentence describes each bug; it names the rule if
Apache Kafka had the bug or has a rule against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pykbroker.api import produce
from pykbroker.controller import active, alter_partition, brokers
from pykbroker.controller.active import ActiveController
from pykbroker.controller.result import Result
from pykbroker.controller.state import ControllerState, HeldElections
from pykbroker.coordinator.host import Host
from pykbroker.coordinator.machine import CoordinatorRuntime
from pykbroker.coordinator.request_guards import RequestVerification
from pykbroker.coordinator.transaction.shard import TransactionShard
from pykbroker.crossing.hand_over import HandOver
from pykbroker.liveness.broker_deaths import BrokerDeaths, DeathEffect
from pykbroker.metadata.image import PartitionImage
from pykbroker.net.client import PeerAddress
from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
from pykbroker.quorum.driver import QuorumDriver
from pykbroker.quorum.metadata_listeners import MetadataListeners
from pykbroker.replica.delayed_produce import DelayedProduce
from pykbroker.replica.fetching.partition_fetch import NO_EPOCH, PartitionFetch
from pykbroker.replica.fetching.session import Position
from pykbroker.replica.follower import PartitionFollower
from pykbroker.replica.leader import PartitionLeader
from pykbroker.runtime.later import at_any_time
from pykbroker_log.partition_log import PartitionLog
from pykbroker_raft import batches
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.metadata_storage import MetadataStorage
from pykbroker_raft.raft_node import RaftNode
from pykbroker_raft.ready import Now
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import RequestPartitionData

Plant = Callable[[], AbstractContextManager[object]]


@dataclass(slots=True, frozen=True)
class Bug:
    """`found_by` has the ids of invariants, or the names of the history's checks, one of which must be broken. `seed`
    is that of an ordinary run that finds the bug."""

    plant: Plant
    found_by: frozenset[str]
    seed: int

    @property
    def name(self) -> str:
        return self.plant.__name__


@contextmanager
def high_watermark_without_min_isr() -> Iterator[None]:
    """A leader moves its high watermark however small its ISR is (B3; KIP-966)."""
    with mock.patch.object(PartitionLeader, "has_enough_replicas", return_value=True):
        yield


@contextmanager
def no_truncation_on_a_diverging_epoch() -> Iterator[None]:
    """A follower does not send the epoch in which its log ends, so its leader never sends a diverging epoch (KIP-101,
    KIP-595)."""

    def position(self: PartitionFetch) -> Position:
        return Position(self.fetch_offset, self.leader_epoch, NO_EPOCH, self.log_start_offset)

    with mock.patch.object(PartitionFetch, "position", property(position)):
        yield


@contextmanager
def vote_without_a_persisted_epoch() -> Iterator[None]:
    """A voter answers before quorum-state is written, and after a restart it has forgotten the vote."""
    with mock.patch.object(MetadataStorage, "write_election_state", return_value=None):
        yield


@contextmanager
def vote_that_is_not_persisted() -> Iterator[None]:
    """quorum-state keeps the epoch, but not the vote that was given in it."""
    write = MetadataStorage.write_election_state

    def without_vote(self: MetadataStorage, state: ElectionState) -> None:
        write(self, ElectionState(state.epoch, state.leader_id, None, state.voters, state.kraft_version))

    with mock.patch.object(MetadataStorage, "write_election_state", without_vote):
        yield


@contextmanager
def isr_change_of_an_older_epoch() -> Iterator[None]:
    """The controller accepts an ISR change from a broker that led in an older leader epoch (KIP-497)."""

    def problem(
        state: ControllerState,
        broker_id: int,
        partition: PartitionImage,
        data: RequestPartitionData,
        isr: Sequence[tuple[int, int]],
    ) -> ErrorCode | None:
        is_eligible = all(state.image.broker_is_active(replica) for replica, _ in isr)
        return None if is_eligible else ErrorCode.INELIGIBLE_REPLICA

    with mock.patch.object(alter_partition, "_problem", problem):
        yield


@contextmanager
def acks_before_the_followers_fetch() -> Iterator[None]:
    """A produce request that waits for all replicas is answered when its leader has the records."""

    def await_commits(self: DelayedProduce) -> None:
        for position in sorted(self._open):
            self._finish(position, ErrorCode.NONE)

    with mock.patch.object(DelayedProduce, "_await_commits", await_commits):
        yield


@contextmanager
def a_stale_controllers_write() -> Iterator[None]:
    """A controller does not learn that its leadership has ended, and nothing keeps its records out of its log."""

    def handle_leader(self: ActiveController, leader_id: int | None, epoch: int) -> None:
        if leader_id == self._node_id:
            self._claim(epoch)

    def append(self: QuorumDriver, records: list[bytes]) -> int:
        offset = self.node.propose(records, self._now())
        self._work(values=records)
        return offset

    def propose(self: RaftNode, values: list[bytes], now: Now) -> int:
        records = batches.data_batch(values, self.log.end_offset, self.epoch, now.wall_ms)
        self._log.append_own(records, len(values), self.epoch)
        self.tick(now)
        return self.log.end_offset - 1

    with (
        mock.patch.object(ActiveController, "handle_leader", handle_leader),
        mock.patch.object(QuorumDriver, "append", append),
        mock.patch.object(RaftNode, "propose", propose),
    ):
        yield


@contextmanager
def follower_commits_beyond_its_leader() -> Iterator[None]:
    """A follower regards all records that it has as committed."""
    agree = PartitionFollower.agree

    def everything(self: PartitionFollower, high_watermark: int, log_start_offset: int) -> None:
        agree(self, self.log_end_offset, log_start_offset)

    with mock.patch.object(PartitionFollower, "agree", everything):
        yield


@contextmanager
def controller_before_its_epochs_record() -> Iterator[None]:
    """A controller acts when its node is elected, before it has seen the records committed before."""

    def tell_leader(self: MetadataListeners, registration: Any) -> None:
        change = self._leader
        if change is not None and registration.told_leader != (change.leader_id, change.epoch):
            registration.told_leader = (change.leader_id, change.epoch)
            self._call(registration, "handle_leader", change.leader_id, change.epoch)

    with mock.patch.object(MetadataListeners, "_tell_leader", tell_leader):
        yield


@contextmanager
def uncommitted_metadata_is_shown() -> Iterator[None]:
    """A node shows the records of its metadata log, committed or not."""
    appended = MetadataListeners.appended

    def appended_and_shown(self: MetadataListeners, records: bytes, values: list[bytes] | None = None) -> None:
        appended(self, records, values)
        if self._high_watermark is not None:
            self._high_watermark = max(self._high_watermark, self._recent[-1].next_offset)

    with mock.patch.object(MetadataListeners, "appended", appended_and_shown):
        yield


@contextmanager
def early_fence_that_elects_uncleanly() -> Iterator[None]:
    """A broker whose process is gone is fenced at once, and any other live broker may lead partitions that only it has,
    as if
    nothing could be lost (decision 23)."""
    fence = brokers.fence_gone_broker

    def fence_and_elect(state: ControllerState, broker_id: int, broker_epoch: int, now_ms: int) -> Result[None]:
        with (
            mock.patch.object(ControllerState, "unclean_election_enabled", return_value=True),
            mock.patch.object(HeldElections, "holds", return_value=False),
        ):
            return fence(state, broker_id, broker_epoch, now_ms)

    with mock.patch.object(active, "fence_gone_broker", fence_and_elect):
        yield


@contextmanager
def early_fence_of_a_broker_that_is_alive() -> Iterator[None]:
    """A broker that ends a connection is fenced, whatever its port says (decision 23)."""
    probed = BrokerDeaths.probed

    def refuses_always(
        self: BrokerDeaths, broker_id: int, number: int, endpoint: PeerAddress, *, refuses: bool
    ) -> list[DeathEffect]:
        return probed(self, broker_id, number, endpoint, refuses=True)

    with mock.patch.object(BrokerDeaths, "probed", refuses_always):
        yield


@contextmanager
def markers_are_lost_at_failover() -> Iterator[None]:
    """A new transaction coordinator does not complete transactions that were decided before."""
    with mock.patch.object(TransactionShard, "loaded", return_value=()):
        yield


@contextmanager
def offset_commit_before_its_commit() -> Iterator[None]:
    """A coordinator answers when its records are in its own log."""

    def answer(self: CoordinatorRuntime[Any], host: Host[Any], answers: list[tuple[Any, Any]]) -> None:
        for request, given in answers:
            request.complete(given)

    with mock.patch.object(CoordinatorRuntime, "_answer_when_committed", answer):
        yield


@contextmanager
def followers_forget_producers() -> Iterator[None]:
    """A follower does not learn of idempotent producers from the batches that it appends: when it leads, it accepts a
    batch that is sent again as a new one."""
    append = PartitionLog.append_as_follower

    def without_producers(self: PartitionLog, records: Any, *, now_ms: int = 0) -> Any:
        with mock.patch.object(type(self.producers), "apply", return_value=None):
            return append(self, records, now_ms=now_ms)

    with mock.patch.object(PartitionLog, "append_as_follower", without_producers):
        yield


@contextmanager
def requests_overtake_one_that_waits_for_a_coordinator() -> Iterator[None]:
    """A connection is not muted while a Produce waits for a transaction's coordinator, and the guard of the first
    question is that of the append (KIP-890). Found without faults (run_together in transactions.py)."""
    take_guards = RequestVerification._take_guards

    def once(self: RequestVerification) -> None:
        if not self._questions:
            take_guards(self)

    with (
        mock.patch.object(produce, "in_order", return_value=at_any_time),
        mock.patch.object(RequestVerification, "_take_guards", once),
        mock.patch.object(RequestVerification, "must_ask_again", return_value=False),
    ):
        yield


@contextmanager
def appends_before_it_takes_what_was_handed_over() -> Iterator[None]:
    """A broker loop that stood still appends and acknowledges for clients before it takes what its control loop has
    handed over: the leadership may have ended (decision 30)."""
    take_all = HandOver.take_all

    def called(self: HandOver[Any]) -> None:
        self._is_called = False
        take_all(self)

    with mock.patch.object(HandOver, "_called", called), mock.patch.object(HandOver, "take_all", return_value=None):
        yield


@contextmanager
def heartbeats_of_a_broker_that_stands_still() -> Iterator[None]:
    """A control loop sends heartbeats however long its broker loop stands still, so the broker is never fenced, as in
    Apache Kafka (decision 30)."""
    with mock.patch.object(BrokerLifecycle, "stand_still", return_value=None):
        yield


BUGS = (
    Bug(high_watermark_without_min_isr, frozenset({"P10"}), 1),
    Bug(no_truncation_on_a_diverging_epoch, frozenset({"P2", "P4", "P6", "P12"}), 0),
    Bug(vote_without_a_persisted_epoch, frozenset({"R2", "R3"}), 0),
    Bug(vote_that_is_not_persisted, frozenset({"R3"}), 0),
    Bug(isr_change_of_an_older_epoch, frozenset({"P3", "P5", "P6"}), 4),
    Bug(acks_before_the_followers_fetch, frozenset({"P10", "A1"}), 0),
    Bug(a_stale_controllers_write, frozenset({"R7", "R8", "C1"}), 16),
    Bug(follower_commits_beyond_its_leader, frozenset({"P7"}), 0),
    Bug(controller_before_its_epochs_record, frozenset({"C1", "C2"}), 0),
    Bug(uncommitted_metadata_is_shown, frozenset({"R14"}), 0),
    Bug(early_fence_that_elects_uncleanly, frozenset({"P3"}), 172),
    Bug(early_fence_of_a_broker_that_is_alive, frozenset({"C3"}), 1),
    Bug(markers_are_lost_at_failover, frozenset({"nothing_hangs", "transactions_are_atomic"}), 1),
    Bug(offset_commit_before_its_commit, frozenset({"A1", "commits_are_kept"}), 1),
    Bug(followers_forget_producers, frozenset({"T9", "written_once", "reads_are_exact"}), 0),
    Bug(appends_before_it_takes_what_was_handed_over, frozenset({"P14"}), 153),
    Bug(heartbeats_of_a_broker_that_stands_still, frozenset({"C4"}), 112),
)
