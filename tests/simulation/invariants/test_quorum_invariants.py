"""Each invariant of the quorum is broken once, by three voters with hand-made states, and found."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.quorum.driver import QuorumDriver
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_raft import batches
from pykbroker_raft.election_state import ElectionState
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.majority import QuorumReplicas, Tally
from pykbroker_raft.metadata_storage import MetadataStorage, StorageConfig
from pykbroker_raft.states import Candidate, Follower, Leader, Prospective, State, Unattached
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.quorum import QuorumInvariants

NOW_MS = 1_700_000_000_000
VOTERS = VoterSet.of(
    VoterNode(ReplicaKey(number, bytes([number]) * 16), (Endpoint("CONTROLLER", f"node{number}", 9093),))
    for number in (1, 2, 3)
)


class Voter:
    """A voter with a real log on its own disk, and a state that the test chooses."""

    def __init__(self, invariants: QuorumInvariants, number: int) -> None:
        self.invariants = invariants
        self.number = number
        self.disk = MemoryDisk()
        self.disk.make_dirs("/data")
        self.storage = MetadataStorage.open(self.disk, "/data", StorageConfig(), NOW_MS)
        for path in ("/", "/data"):
            self.disk.fsync_dir(path)
        self.start()

    def start(self) -> None:
        view = LogView(0, self.storage.log.log_end_offset)
        self.raft: Any = SimpleNamespace(
            _roles=SimpleNamespace(state=Unattached(0)),
            _log=SimpleNamespace(high_watermark=None),
            log=view,
            state=Unattached(0),
            epoch=0,
            high_watermark=None,
            is_voter=True,
            voters=VOTERS,
        )
        runtime = SimpleNamespace(disk=self.disk)
        driver = SimpleNamespace(node=self.raft, node_id=self.number, storage=self.storage, _runtime=runtime)
        self.driver = cast(QuorumDriver, driver)
        self.invariants.started(self.number, self.driver, self.disk)

    def restart(self, survive: Survive) -> None:
        self.lose(self.disk.power_loss(survive, choose=random.Random(1).randrange))

    def lose(self, disk: MemoryDisk) -> None:
        self.invariants.ended(self.number)
        self.disk = disk
        self.storage = MetadataStorage.open(self.disk, "/data", StorageConfig(), NOW_MS)
        self.start()

    def becomes(self, state: State) -> None:
        self.raft.state = self.raft._roles.state = state
        self.raft.epoch = state.epoch
        self.look()

    def leads(self, epoch: int) -> None:
        key = ReplicaKey(self.number, bytes([self.number]) * 16)
        end = self.storage.log.log_end_offset
        self.becomes(Leader(epoch, self.number, end, QuorumReplicas.of(key, VOTERS), (), 0, 0))

    def appends(self, epoch: int, value: bytes, *, flush: bool = True) -> None:
        end = self.storage.log.log_end_offset
        self.storage.append(batches.data_batch([value], end, epoch, NOW_MS), epoch, NOW_MS)
        if flush:
            self.storage.flush()
        self.raft.log.end_offset = self.storage.log.log_end_offset
        self.look()

    def commits(self, offset: int) -> None:
        self.raft.high_watermark = self.raft._log.high_watermark = offset
        if isinstance(self.raft.state, Leader):
            self.raft.state.high_watermark = offset
        self.look()

    def cut(self, offset: int) -> None:
        self.storage.truncate(offset)
        self.raft.log.end_offset = self.storage.log.log_end_offset
        self.look()

    def look(self) -> None:
        member = self.invariants.members[self.number]
        if not member.is_as_before():
            self.invariants.look(member)


class Quorum:
    def __init__(self) -> None:
        self.invariants = QuorumInvariants([1, 2, 3])
        self.one, self.two, self.three = (Voter(self.invariants, number) for number in (1, 2, 3))


def with_one_committed() -> Quorum:
    quorum = Quorum()
    quorum.one.leads(1)
    quorum.one.appends(1, b"a")
    quorum.two.appends(1, b"a")
    quorum.one.commits(1)
    quorum.two.becomes(Follower(1, 1, (), 0, 0))
    quorum.two.commits(1)
    assert quorum.invariants.ledger.end == 1
    return quorum


def broken(rule: str) -> pytest.RaisesExc[InvariantBroken]:
    return pytest.RaisesExc(InvariantBroken, check=lambda error: error.rule == rule)


def test_an_election_and_a_commit_break_nothing() -> None:
    quorum = with_one_committed()
    quorum.two.leads(2)
    quorum.two.appends(2, b"b")
    quorum.three.appends(1, b"a")
    quorum.three.appends(2, b"b")
    quorum.two.commits(2)
    quorum.one.restart(Survive.NOTHING)
    quorum.one.becomes(Follower(2, 2, (), 0, 0))
    quorum.one.appends(2, b"b")
    quorum.one.commits(2)
    assert quorum.invariants.ledger.end == 2
    assert quorum.invariants.leaders == {1: 1, 2: 2}


def test_r1_an_epoch_has_two_leaders() -> None:
    quorum = with_one_committed()
    with broken("R1"):
        quorum.three.leads(1)


def test_r1_a_follower_knows_another_leader() -> None:
    quorum = with_one_committed()
    with broken("R1"):
        quorum.three.becomes(Follower(1, 2, (), 0, 0))


def test_r2_an_epoch_goes_back_over_a_restart() -> None:
    quorum = with_one_committed()
    quorum.two.storage.write_election_state(ElectionState(1))
    quorum.two.restart(Survive.EVERYTHING)
    with broken("R2"):
        quorum.two.becomes(Unattached(0, voted=ReplicaKey(2)))


def test_r2_a_message_tells_of_an_epoch_that_is_not_durable() -> None:
    quorum = Quorum()
    quorum.one.storage.write_election_state(ElectionState(1))
    quorum.one.becomes(Unattached(1))
    quorum.invariants.says(quorum.one.driver, "a fetch")
    quorum.one.becomes(Unattached(2))
    with broken("R2"):
        quorum.invariants.says(quorum.one.driver, "a fetch")


def test_r3_a_voter_votes_twice() -> None:
    quorum = Quorum()
    quorum.one.storage.write_election_state(ElectionState(1, voted=ReplicaKey(2)))
    quorum.one.becomes(Unattached(1, voted=ReplicaKey(2)))
    quorum.invariants.says(quorum.one.driver, "a vote")
    quorum.one.restart(Survive.NOTHING)
    with broken("R3"):
        quorum.one.becomes(Unattached(1, voted=ReplicaKey(3)))


def test_a_vote_that_was_not_durable_when_the_voter_died_was_never_given() -> None:
    quorum = Quorum()
    quorum.one.storage.write_election_state(ElectionState(1))
    quorum.one.becomes(Unattached(1, voted=ReplicaKey(2)))
    quorum.one.restart(Survive.NOTHING)
    quorum.one.becomes(Unattached(1, voted=ReplicaKey(3)))


def test_r3_a_vote_leaves_before_it_is_durable() -> None:
    quorum = Quorum()
    quorum.one.storage.write_election_state(ElectionState(1))
    quorum.one.becomes(Unattached(1, voted=ReplicaKey(2)))
    with broken("R3"):
        quorum.invariants.says(quorum.one.driver, "a vote")


def test_r4_a_high_watermark_goes_back() -> None:
    quorum = with_one_committed()
    with broken("R4"):
        quorum.two.commits(0)


def test_r4_a_follower_commits_what_no_leader_does() -> None:
    quorum = with_one_committed()
    quorum.two.appends(1, b"b")
    with broken("R4"):
        quorum.two.commits(2)


def test_r4_a_high_watermark_is_beyond_the_log() -> None:
    quorum = with_one_committed()
    with broken("R4"):
        quorum.two.commits(7)


def test_r5_a_leader_commits_without_a_majority() -> None:
    quorum = with_one_committed()
    quorum.one.appends(1, b"b")
    with broken("R5"):
        quorum.one.commits(2)


def test_r5_a_majority_holds_it_and_not_durably() -> None:
    quorum = with_one_committed()
    quorum.one.appends(1, b"b")
    quorum.two.appends(1, b"b", flush=False)
    with broken("R5"):
        quorum.one.commits(2)


def test_r5_a_voter_that_has_not_started_yet_holds_nothing() -> None:
    invariants = QuorumInvariants([1, 2, 3])
    one, two = Voter(invariants, 1), Voter(invariants, 2)
    for voter in (one, two):
        voter.storage.write_election_state(ElectionState(1))
    one.leads(1)
    one.appends(1, b"a")
    two.appends(1, b"a")
    one.commits(1)
    one.appends(1, b"b")
    with broken("R5"):
        one.commits(2)


def test_r6_a_log_is_cut_below_its_high_watermark() -> None:
    quorum = with_one_committed()
    with broken("R6"):
        quorum.two.cut(0)


def test_l1_a_node_has_lost_what_was_durable() -> None:
    quorum = with_one_committed()
    empty = MemoryDisk()
    empty.make_dirs("/data")
    with broken("L1"):
        quorum.two.lose(empty)
        quorum.two.becomes(Unattached(1))


def test_r7_a_node_commits_another_batch() -> None:
    quorum = with_one_committed()
    quorum.three.becomes(Follower(1, 1, (), 0, 0))
    quorum.three.appends(0, b"z")
    with broken("R7"):
        quorum.three.commits(1)


def test_r7_one_offset_of_one_epoch_is_two_batches() -> None:
    quorum = with_one_committed()
    with broken("R7"):
        quorum.three.appends(1, b"z")


def test_r8_a_leader_lacks_what_is_committed() -> None:
    quorum = with_one_committed()
    with broken("R8"):
        quorum.three.leads(2)


def test_r10_a_leader_commits_records_of_an_earlier_epoch_alone() -> None:
    quorum = with_one_committed()
    quorum.one.appends(1, b"b")
    quorum.two.appends(1, b"b")
    quorum.two.leads(2)
    with broken("R10"):
        quorum.two.commits(2)


def test_r11_a_log_starts_where_no_snapshot_is() -> None:
    quorum = with_one_committed()
    quorum.one.raft.log.start_offset = 1
    with broken("R11"):
        quorum.one.look()


def test_r11_a_snapshot_is_beyond_what_is_committed() -> None:
    quorum = with_one_committed()
    quorum.one.raft.log.snapshots = {OffsetAndEpoch(5, 1): 100}
    quorum.one.raft.log.start_offset = 5
    with broken("R11"):
        quorum.one.look()


def test_r12_an_observer_stands_for_an_election() -> None:
    quorum = Quorum()
    quorum.three.raft.is_voter = False
    with broken("R12"):
        quorum.three.becomes(Candidate(1, Tally.of(VOTERS, 3), 0, ReplicaKey(3)))


def test_r12_a_pre_candidate_raises_its_epoch() -> None:
    quorum = Quorum()
    quorum.three.becomes(Unattached(1))
    with broken("R12"):
        quorum.three.becomes(Prospective(2, Tally.of(VOTERS, 3), 0))
