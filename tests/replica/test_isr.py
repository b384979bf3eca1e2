"""The in-sync replicas and the change in flight, as a state machine (KIP-497)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykbroker.replica.isr import Direction, Isr, PendingIsr

REPLICAS = (1, 2, 3, 4)


def test_a_replica_that_is_to_join_counts_at_once() -> None:
    isr = Isr((1,), 5)
    change = isr.propose_expansion(2)
    assert (change.direction, change.replicas, change.partition_epoch) == (Direction.EXPAND, (1, 2), 5)
    assert (isr.committed, isr.maximal) == ((1,), (1, 2))


def test_a_replica_that_is_to_leave_counts_until_it_has_left() -> None:
    isr = Isr((1, 2, 3), 5)
    change = isr.propose_shrinking([2])
    assert (change.direction, change.replicas) == (Direction.SHRINK, (1, 3))
    assert (isr.committed, isr.maximal) == ((1, 2, 3), (1, 2, 3))
    isr.settle((1, 3), 6)
    assert (isr.committed, isr.maximal, isr.pending, isr.partition_epoch) == ((1, 3), (1, 3), None, 6)


class Controller(RuleBasedStateMachine):
    """A controller that carries out the leader's requests, or refuses them, and whose answers arrive late or never. The
    maximal set always includes the controller's set."""

    def __init__(self) -> None:
        super().__init__()
        self.isr = Isr((1, 2, 3), 0)
        #: the controller's sets, by partition epoch
        self.truth: list[tuple[int, ...]] = [(1, 2, 3)]
        #: requests that the controller has not decided
        self.asked: list[PendingIsr] = []

    def settled(self) -> bool:
        return self.isr.pending is None

    @precondition(settled)
    @rule(replica=st.sampled_from(REPLICAS))
    def expand(self, replica: int) -> None:
        if replica not in self.isr.committed:
            self.asked.append(self.isr.propose_expansion(replica))

    @precondition(settled)
    @rule(leaving=st.sets(st.sampled_from(REPLICAS[1:]), min_size=1))
    def shrink(self, leaving: set[int]) -> None:
        if leaving & set(self.isr.committed):
            self.asked.append(self.isr.propose_shrinking(leaving))

    @precondition(lambda self: self.asked)
    @rule()
    def decide(self) -> None:
        """Decide as AlterPartition does: a change that is not based on the newest partition epoch is not made."""
        change = self.asked.pop(0)
        if change.partition_epoch == len(self.truth) - 1:
            self.truth.append(change.replicas)

    @precondition(lambda self: self.asked)
    @rule()
    def refuse(self) -> None:
        change = self.asked.pop(0)
        if self.isr.pending is change:
            self.isr.withdraw()

    @rule(replica=st.sampled_from(REPLICAS[1:]))
    def fence(self, replica: int) -> None:
        """Let the controller remove a replica by itself."""
        newest = self.truth[-1]
        if replica in newest:
            self.truth.append(tuple(other for other in newest if other != replica))

    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        """Pass on a set in the metadata or an answer, which is not always the newest."""
        epoch = data.draw(st.integers(self.isr.partition_epoch, len(self.truth) - 1))
        if epoch > self.isr.partition_epoch:
            self.isr.settle(self.truth[epoch], epoch)

    @invariant()
    def the_maximal_set_holds_the_committed_one(self) -> None:
        assert set(self.isr.maximal) >= set(self.isr.committed)

    @invariant()
    def the_set_of_the_controller_is_within_the_maximal_one(self) -> None:
        # Only this leader makes the set larger, and it counts a replica from its request on.
        assert set(self.truth[-1]) <= set(self.isr.maximal)

    @invariant()
    def a_replica_that_may_have_joined_counts(self) -> None:
        for change in self.asked:
            if change is self.isr.pending and change.direction is Direction.EXPAND:
                assert set(change.replicas) == set(self.isr.maximal)


TestController = pytest.mark.slow(Controller.TestCase)
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
