"""A leader, two followers and the controller, with nothing in order: hypothesis delays, repeats and loses what they say
to each other, fences followers, and has them lose records.

Real are the leader's partition, its way to the controller, and what the controller decides. A follower is a number: how
far its log goes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pykbroker.controller.alter_partition import alter_partition
from pykbroker.controller.elections import leader_and_isr_updates, with_broker_in_isr
from pykbroker.metrics.registry import Counter
from pykbroker.net.client import Disconnected
from pykbroker.node_to_controller.isr_changes import IsrChanges
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import BrokerRegistrationChangeRecord
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


@dataclass
class Follower:
    end: int = 0
    broker_epoch: int = -1


@dataclass
class Question:
    """A request of the leader's broker, with the controller's answer once it has decided."""

    request: AlterPartitionRequest
    future: asyncio.Future[Any]
    answer: AlterPartitionResponse | None = None


@dataclass
class Wires:
    """What is on its way: to followers and from them, to the controller and back."""

    fetches: list[Fetch] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    #: metadata that the leader has not heard
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

    def hear(self) -> None:
        self.world.publish(*self.wires.metadata.pop(0))
        self.world.loop.settle()

    # -- the leader ---------------------------------------------------------------------------------------------------

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
    @rule()
    def the_leader_hears_of_metadata(self) -> None:
        self.hear()

    # -- followers ----------------------------------------------------------------------------------------------------

    @rule(number=FOLLOWER)
    def a_follower_asks(self, number: int) -> None:
        follower = self.followers[number]
        self.wires.fetches.append(Fetch(number, follower.broker_epoch, follower.end))

    @precondition(lambda self: self.wires.fetches)
    @rule(data=st.data(), answered=st.booleans(), count=st.integers(1, 3))
    def a_fetch_arrives(self, data: st.DataObject, answered: bool, count: int) -> None:
        """Not always the oldest. `answered`: the follower gets the records."""
        which = data.draw(st.integers(0, len(self.wires.fetches) - 1))
        self.take(self.wires.fetches.pop(which), answered, count)

    def take(self, fetch: Fetch, answered: bool, count: int) -> None:
        leader, log = self.partition.leader, self.partition.log
        assert leader is not None
        try:
            leader.require_follower(fetch.replica_id, fetch.broker_epoch, names_epoch=True)
        except KafkaError:
            return
        self.partition.note_fetched(fetch.replica_id, fetch.offset, broker_epoch=fetch.broker_epoch)
        self.world.loop.advance(0)
        follower = self.followers[fetch.replica_id]
        if answered and (follower.broker_epoch, follower.end) == (fetch.broker_epoch, fetch.offset):
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
        """A request that has not arrived may arrive later all the same: it stays, and no answer is waited for."""
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
        partition = self.controller.state.image.topics.by_id[topic_id("t")].partitions[0]
        assert partition.leader == NODE
        for member in partition.isr:
            if member != NODE:
                assert self.followers[member].end >= self.partition.high_watermark

    @invariant()
    def nothing_is_committed_under_min_isr(self) -> None:
        if not hasattr(self, "partition"):
            return
        before, self.high_watermark = self.high_watermark, self.partition.high_watermark
        assert self.high_watermark >= before
        if self.high_watermark > before:
            leader = self.partition.leader
            assert leader is not None
            assert len(leader.isr.committed) >= self.min_isr

    def teardown(self) -> None:
        """When nothing is lost any more, all followers join, and all is committed."""
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
            for number, follower in self.followers.items():
                self.take(Fetch(number, follower.broker_epoch, follower.end), True, 1_000)
            self.world.loop.advance(1)
        self.every_member_of_the_isr_has_what_is_committed()
        partition = self.controller.state.image.topics.by_id[topic_id("t")].partitions[0]
        assert sorted(partition.isr) == list(REPLICAS)
        assert self.partition.high_watermark == self.partition.log.log_end_offset


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
