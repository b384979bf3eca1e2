"""However many orders change at once, a turn of the loop does a bounded part of the work."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from pykbroker.dead_letters.letter_batches import LetterFrame
from pykbroker.dead_letters.letter_orders import LetterOrder, OrderStage
from pykbroker.dead_letters.letter_topics import LetterPartition, LetterTopic, MissingTopic
from pykbroker.dead_letters.writer_machine import MOST_ORDERS_A_TURN, WriterMachine
from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_wire.errors import ErrorCode

ORDERS = 20 * MOST_ORDERS_A_TURN
#: A turn may do this many steps of each of its four kinds: ends of rests, looks for a leader, ends of creations, and
#: looks at the topic.
MOST_STEPS = 4 * MOST_ORDERS_A_TURN


class Counts:
    def sent(self, group_id: str) -> None: ...
    def written(self, group_id: str, letters: int) -> None: ...
    def failed(self, group_id: str) -> None: ...


class Bench:
    """A machine with many orders, whose topic the test changes."""

    def __init__(self, topic: LetterTopic) -> None:
        self.topic = topic
        self.looks = 0
        self.now = 0.0
        self.machine = WriterMachine(self.look, lambda order: False, Counts(), random.Random(0))
        frame = LetterFrame("s", 0, "g", 1, "")
        self.orders = []
        for offset in range(ORDERS):
            letters = DeadLetters("g", b"s" * 16, 0, offset, offset, 1, DeadLetterCause.REJECTED)
            self.orders.append(LetterOrder(letters, frame))
            self.machine.submit(self.orders[-1])

    def look(self, order: LetterOrder) -> LetterTopic:
        self.looks += 1
        return self.topic

    def stages(self) -> Counter[OrderStage]:
        return Counter(order.stage for order in self.orders)

    def settle(self, change: Callable[[], object] = lambda: None) -> int:
        """Change something, and take turns until nothing is left to do now. Return their number. Neither the change nor
        a turn changes the stage of many orders."""
        before = [order.stage for order in self.orders]
        change()
        turns = 0
        has_more = True
        while has_more:
            self.looks = 0
            self.machine.take_steps(self.now, 0)
            has_more = self.machine.has_more
            after = [order.stage for order in self.orders]
            assert sum(one is not other for one, other in zip(before, after, strict=True)) <= MOST_STEPS
            assert self.looks <= MOST_STEPS
            assert len(self.machine.take_ended()) <= MOST_STEPS
            before, turns = after, turns + 1
        return turns


def partition(leader: int, epoch: int) -> LetterPartition:
    return LetterPartition("dlq", b"d" * 16, 0, leader, epoch, 5_000)


@pytest.mark.parametrize(
    ("error", "stage"), [(ErrorCode.LEADER_NOT_AVAILABLE, "RESTING"), (ErrorCode.INVALID_CONFIG, "ENDED")]
)
def test_a_creation_that_fails(error: ErrorCode, stage: str) -> None:
    bench = Bench(MissingTopic("dlq"))
    bench.settle()
    assert bench.stages() == {OrderStage.CREATING: ORDERS}
    turns = bench.settle(lambda: bench.machine.created("dlq", error, bench.now))
    assert bench.stages() == {OrderStage[stage]: ORDERS}
    assert turns >= ORDERS / MOST_ORDERS_A_TURN


def test_rests_that_end_together() -> None:
    bench = Bench(partition(-1, 0))
    bench.settle()
    assert bench.stages() == {OrderStage.RESTING: ORDERS}
    bench.now = 100.0
    turns = bench.settle()
    assert bench.stages() == {OrderStage.RESTING: ORDERS}
    assert turns >= ORDERS / MOST_ORDERS_A_TURN
    due = bench.machine.next_wake()
    assert due is not None
    assert due > bench.now


def test_a_new_leader() -> None:
    bench = Bench(partition(-1, 0))
    bench.settle()
    bench.topic = partition(1, 1)
    bench.settle(lambda: bench.machine.topics_changed(bench.now))
    # One request has the first of them.
    stages = bench.stages()
    assert stages.keys() == {OrderStage.READY, OrderStage.SENT}
    assert stages.total() == ORDERS


def test_metadata_that_changes_during_the_turns() -> None:
    """No order is forgotten, and none waits twice for its turn."""
    bench = Bench(partition(-1, 0))
    bench.settle()
    for epoch in range(1, 4):
        bench.topic = partition(-1, epoch)
        bench.machine.topics_changed(bench.now)
        bench.machine.take_steps(bench.now, 0)
        assert bench.machine.has_more
    bench.settle()
    assert {order.target for order in bench.orders} == {bench.topic}
