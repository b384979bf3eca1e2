"""A leader, two followers and the controller without any order: hypothesis delays, repeats and loses their messages. It
fences followers, lets them lose records, and elects the same leader anew, or a follower for a while.

The leader's partition, its way to the controller, and the controller's decisions are real. A follower is a number: the
end of its log. A follower that leads writes nothing, so all logs are cut at its end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.controller.alter_partition import alter_partition
from pykbroker.controller.elections import leader_and_isr_updates, with_broker_in_isr
from pykbroker.metadata.image import PartitionImage
from pykbroker.metrics.registry import Counter
from pykbroker.net.client import Disconnected
from pykbroker.node_to_controller.isr_changes import IsrChanges
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.controller.world import Pure, broker_record
from tests.node_to_controller.fakes import FakeLeadership
from tests.replica.world import NODE, NOW_MS, World, batch, topic, topic_id

FOLLOWERS = (2, 3)
REPLICAS = (NODE, *FOLLOWERS)
LAG_SECONDS = 30
FOLLOWER = st.sampled_from(FOLLOWERS)


@dataclass(frozen=True)
class Fetch:
    """A follower's fetch on its way."""

    replica_id: int
    broker_epoch: int
    offset: int
    leader_epoch: int


@dataclass
class Follower:
    end: int = 0
    broker_epoch: int = -1
    #: that of its last fetch
    leader_epoch: int = 0


@dataclass
class Question:
    """A request of the leader's broker, with the controller's answer once it has decided."""

    request: AlterPartitionRequest
    future: asyncio.Future[Any]
    answer: AlterPartitionResponse | None = None


@dataclass
class Wires:
    """Messages on their way: to followers and from them, to the controller and back."""

    fetches: list[Fetch] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    #: metadata that the leader has not got
    metadata: list[list[TopLevel]] = field(default_factory=list)


class Replication(RuleBasedStateMachine):
    @initialize(min_isr=st.integers(1, 3))
    def begin(self, min_isr: int) -> None:
        self.world = World()
        self.min_isr = min_isr
        self.controller = Pure(brokers=0)
        self.followers = {number: Follower() for number in FOLLOWERS}
        self.wires = Wires()
        self.high_watermark = 0
        #: leader epoch -> the end at which logs of older epochs are cut
        self.cuts: dict[int, int] = {}
        runtime = self.world.runtime
        leadership = FakeLeadership()
        changes = IsrChanges(runtime, NODE, lambda: self.epoch_of(NODE), self, leadership, Counter("failures"))
        self.world.ask_controller = changes.submit
        for number in REPLICAS:
            self.commit(broker_record(number, epoch=self.controller.offset))
        for number, follower in self.followers.items():
            follower.broker_epoch = self.epoch_of(number)
        self.commit(*topic("t", 1, REPLICAS, min_insync_replicas=str(min_isr)))
        while self.wires.metadata:
            self.hear()
        self.partition = self.world.replicas.get("t", 0)
        assert self.partition.log.log_end_offset == 0

    def epoch_of(self, broker_id: int) -> int:
        return self.controller.state.image.brokers[broker_id].epoch

    def commit(self, *records: TopLevel) -> None:
        self.controller.replay(list(records))
        self.wires.metadata.append(list(records))

    def hear(self, *, of_all: bool = False) -> None:
        """Pass on the oldest metadata, or all of it at once. Then the leader may never have followed."""
        news = self.wires.metadata
        heard = [news.pop(0) for _ in range(len(news) if of_all else 1)]
        self.world.publish(*(record for records in heard for record in records))
        self.world.loop.settle()
        follower = self.partition.follower if hasattr(self, "partition") else None
        if follower is not None:
            follower.truncate_to(self.cuts[follower.leader_epoch], lambda code: None)
            self.world.loop.settle()

    @property
    def decided(self) -> PartitionImage:
        """The partition in the controller's state."""
        return self.controller.state.image.topics.by_id[topic_id("t")].partitions[0]

    def elect(self, leader: int) -> None:
        change = PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), leader=leader)
        self.commit(change)

    # -- the leader ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.partition.is_leader)
    @rule()
    def append(self) -> None:
        self.partition.append(batch(b"x"), required_acks=1, now_ms=NOW_MS)

    @rule(seconds=st.sampled_from([0.1, 5, LAG_SECONDS + 1]))
    def time_passes(self, seconds: float) -> None:
        self.world.loop.advance(seconds)

    @rule()
    def look_who_has_fallen_behind(self) -> None:
        self.partition.shrink_isr()
        self.world.loop.advance(0)

    @precondition(lambda self: self.wires.metadata)
    @rule(of_all=st.booleans())
    def the_leader_hears_of_metadata(self, of_all: bool) -> None:
        self.hear(of_all=of_all)

    # -- elections ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.decided.leader == NODE)
    @rule()
    def the_same_leader_is_elected_anew(self) -> None:
        self.elect(NODE)

    @precondition(lambda self: self.decided.leader == NODE)
    @rule(number=FOLLOWER)
    def a_follower_is_elected_and_the_leader_again(self, number: int) -> None:
        """Preferred replica elections: the first leader is in sync when it leads again."""
        if number not in self.decided.isr:
            return
        self.elect(number)
        self.cuts[self.decided.leader_epoch] = self.followers[number].end
        for each in FOLLOWERS:
            # The follower fetches for a moment, and its log is cut.
            self.fetch_of(each)
        self.elect(NODE)

    # -- followers ----------------------------------------------------------------------------------------------------

    @rule(number=FOLLOWER)
    def a_follower_asks(self, number: int) -> None:
        self.wires.fetches.append(self.fetch_of(number))

    @rule(number=FOLLOWER, count=st.integers(1, 3))
    def a_follower_fetches(self, number: int, count: int) -> None:
        """Fetch as in an undisturbed network."""
        self.take(self.fetch_of(number), True, count)

    def fetch_of(self, number: int) -> Fetch:
        """Return a fetch in the newest leader epoch, for which the follower has cut its log."""
        follower, epoch = self.followers[number], self.decided.leader_epoch
        cuts = [end for cut_in, end in self.cuts.items() if follower.leader_epoch < cut_in <= epoch]
        follower.end = min([follower.end, *cuts])
        follower.leader_epoch = epoch
        return Fetch(number, follower.broker_epoch, follower.end, epoch)

    @precondition(lambda self: self.wires.fetches)
    @rule(data=st.data(), answered=st.booleans(), count=st.integers(1, 3))
    def a_fetch_arrives(self, data: st.DataObject, answered: bool, count: int) -> None:
        """Let a fetch arrive, which is not always the oldest. `answered`: the follower gets the records."""
        which = data.draw(st.integers(0, len(self.wires.fetches) - 1))
        self.take(self.wires.fetches.pop(which), answered, count)

    def take(self, fetch: Fetch, answered: bool, count: int) -> None:
        log = self.partition.log
        try:
            leader = self.partition.require_leader(fetch.leader_epoch)
            leader.require_follower(fetch.replica_id, fetch.broker_epoch, names_epoch=True)
        except KafkaError:
            return
        self.partition.note_fetched(fetch.replica_id, fetch.offset, broker_epoch=fetch.broker_epoch)
        self.world.loop.advance(0)
        follower = self.followers[fetch.replica_id]
        asked = Fetch(fetch.replica_id, follower.broker_epoch, follower.end, follower.leader_epoch)
        if answered and asked == fetch:
            follower.end = min(log.log_end_offset, follower.end + count)

    @rule(number=FOLLOWER, lost=st.integers(0, 5))
    def a_follower_restarts_without_its_last_records(self, number: int, lost: int) -> None:
        state, follower = self.controller.state, self.followers[number]
        removed = leader_and_isr_updates(state, with_broker_in_isr(state, number), unclean_shutdown=number)
        self.commit(broker_record(number, epoch=self.controller.offset), *removed)
        follower.broker_epoch = self.epoch_of(number)
        follower.end = max(0, follower.end - lost)

    @rule(number=FOLLOWER, fenced=st.booleans())
    def a_follower_is_fenced_or_comes_back(self, number: int, fenced: bool) -> None:
        state = self.controller.state
        if state.image.brokers[number].fenced is fenced:
            return
        change = BrokerRegistrationChangeRecord(
            broker_id=number, broker_epoch=self.epoch_of(number), fenced=1 if fenced else -1
        )
        removed = leader_and_isr_updates(state, with_broker_in_isr(state, number), remove=number) if fenced else []
        self.commit(change, *removed)

    # -- the controller -----------------------------------------------------------------------------------------------

    def send(self, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        """The channel to the controller."""
        future = self.world.runtime.loop.create_future()
        self.wires.questions.append(Question(request, future))
        return future

    @precondition(lambda self: self.undecided())
    @rule()
    def the_controller_decides(self) -> None:
        question = self.undecided()[0]
        result = alter_partition(self.controller.state, question.request, 3)
        if result.records:
            self.commit(*result.records)
        question.answer = result.response

    def undecided(self) -> list[Question]:
        return [question for question in self.wires.questions if question.answer is None]

    @precondition(lambda self: self.wires.questions)
    @rule(lost=st.booleans())
    def the_answer_arrives_or_the_connection_breaks(self, lost: bool) -> None:
        """A request that has not arrived may still arrive later. It stays, and its answer is not awaited."""
        question = self.wires.questions[0]
        if question.future.done():
            if question.answer is not None:
                self.wires.questions.pop(0)
        elif lost:
            question.future.set_exception(Disconnected("gone"))
        elif question.answer is not None:
            self.wires.questions.pop(0)
            question.future.set_result(question.answer)
        self.world.loop.advance(0)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def every_member_of_the_isr_has_what_is_committed(self) -> None:
        if not hasattr(self, "partition"):
            return
        for member in self.decided.isr:
            if member != NODE:
                assert self.followers[member].end >= self.partition.high_watermark

    @invariant()
    def nothing_is_committed_under_min_isr(self) -> None:
        if not hasattr(self, "partition"):
            return
        before, self.high_watermark = self.high_watermark, self.partition.high_watermark
        assert self.high_watermark >= before
        leader = self.partition.leader
        if self.high_watermark > before:
            assert leader is not None
            assert len(leader.isr.committed) >= self.min_isr

    def teardown(self) -> None:
        """Lose no more messages. Then all followers join, and everything is committed."""
        if not hasattr(self, "partition"):
            return
        for number in FOLLOWERS:
            self.a_follower_is_fenced_or_comes_back(number, False)
        for _ in range(30):
            while self.wires.questions:
                while self.undecided():
                    self.the_controller_decides()
                self.the_answer_arrives_or_the_connection_breaks(False)
            while self.wires.metadata:
                self.hear()
            for number in self.followers:
                self.take(self.fetch_of(number), True, 1_000)
            self.world.loop.advance(1)
        self.every_member_of_the_isr_has_what_is_committed()
        assert sorted(self.decided.isr) == list(REPLICAS)
        assert self.partition.high_watermark == self.partition.log.log_end_offset


TestReplication = pytest.mark.slow(Replication.TestCase)
TestReplication.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def test_what_a_follower_proved_before_another_broker_led_counts_no_more() -> None:
    """The leader gets both elections at once, which random steps seldom produce."""
    machine = Replication()
    machine.begin(1)
    machine.append()
    for _ in range(2):
        machine.a_follower_fetches(2, 1)
    machine.a_follower_is_elected_and_the_leader_again(3)
    assert machine.followers[2].end == 0
    machine.hear(of_all=True)
    for _ in range(2):
        machine.a_follower_fetches(3, 1)
    machine.every_member_of_the_isr_has_what_is_committed()
    machine.teardown()
