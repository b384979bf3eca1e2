"""KIP-455: replicas move from brokers to brokers, step by step, and can be called back."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.reassignment import alter_reassignments, list_reassignments
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker_wire.stored.metadata import ConfigRecord
from tests.controller.test_brokers import alter, beat, make, partition
from tests.controller.world import Pure, directory_of


def reassign(
    pure: Pure, replicas: list[int] | None, index: int = 0, name: str = "t", *, may_change_factor: bool = True
) -> Any:
    """Ask for these replicas; null cancels. Return the verdict."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_factor,
        topics=[
            ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
        ],
    )
    response = pure.apply(alter_reassignments(pure.state, request))
    assert (response.error_code, response.error_message) == (0, None)
    assert response.allow_replication_factor_change is may_change_factor
    return response.responses[0].partitions[0]


def in_sync(pure: Pure, *replicas: int) -> Any:
    """Let the leader report which replicas are in sync. Return the answer."""
    return alter(pure, partition(pure).leader, isr_epochs=[(replica, -1) for replica in replicas])


def moving(pure: Pure) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found = partition(pure)
    return found.replicas, found.adding_replicas, found.removing_replicas


def ongoing(pure: Pure, *topics: str) -> list[tuple[str, int]]:
    wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1]) for name in topics] or None
    found = list_reassignments(pure.state, ListPartitionReassignmentsRequest(topics=wanted))
    return [(topic.name, each.partition_index) for topic in found.topics for each in topic.partitions]


def test_a_replica_moves_when_the_new_one_is_in_sync() -> None:
    pure = Pure(brokers=4)
    make(pure, [0, 1, 2], [0, 1, 2])
    assert reassign(pure, [0, 1, 3]).error_code == 0
    assert moving(pure) == ((0, 1, 3, 2), (3,), (2,))
    assert partition(pure).directories[2] == directory_of(3)
    assert (partition(pure).isr, partition(pure).leader_epoch) == ((0, 1, 2), 0)
    assert ongoing(pure) == ongoing(pure, "t") == [("t", 0)]
    assert ongoing(pure, "other") == []
    answer = in_sync(pure, 0, 1, 2, 3)
    # The leader gets the result. Late fetches of the replica that is gone have an old leader epoch.
    assert (answer.error_code, answer.isr, answer.leader_id, answer.leader_epoch) == (0, [0, 1, 3], 0, 1)
    assert moving(pure) == ((0, 1, 3), (), ())
    assert len(partition(pure).directories) == 3
    assert ongoing(pure) == []


def test_a_dead_broker_is_replaced_while_another_replica_that_stays_is_out_of_sync() -> None:
    """Broker 2 is dead, and broker 1 lags. Neither of them keeps broker 3 from replacing broker 2."""
    pure = Pure(brokers=4)
    make(pure, [0, 1, 2])
    beat(pure, 2, want_fence=True)
    in_sync(pure, 0)
    assert reassign(pure, [0, 1, 3]).error_code == 0
    assert moving(pure) == ((0, 1, 3, 2), (3,), (2,))
    answer = in_sync(pure, 0, 3)
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [0, 3], 0)
    assert moving(pure) == ((0, 1, 3), (), ())
    assert ongoing(pure) == []
    assert in_sync(pure, 0, 1, 3).error_code == 0


def test_a_leader_is_replaced_while_the_replica_that_stays_is_dead() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1])
    beat(pure, 1, want_fence=True)
    assert reassign(pure, [1, 2]).error_code == 0
    assert in_sync(pure, 0, 2).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert moving(pure) == ((1, 2), (), ())
    assert (partition(pure).leader, partition(pure).isr) == (2, (2,))


def test_fewer_replicas_wait_for_all_that_stay() -> None:
    """The ISR would become smaller with the end of the reassignment."""
    pure = Pure(brokers=6)
    make(pure, [0, 1, 2, 3, 4])
    in_sync(pure, 0, 1)
    reassign(pure, [2, 3, 4, 5])
    between = ((2, 3, 4, 5, 0, 1), (5,), (0, 1))
    for isr in ([0, 1, 5], [0, 1, 2, 3, 5]):
        assert in_sync(pure, *isr).error_code == 0
        assert moving(pure) == between
    in_sync(pure, 0, 1, 2, 3, 4, 5)
    assert moving(pure) == ((2, 3, 4, 5), (), ())


def test_a_second_reassignment_that_removes_what_the_first_adds_ends() -> None:
    """Broker 2 is not awaited, and neither is broker 1, which is out of sync, because no replica was added in its
    place."""
    pure = Pure(brokers=3)
    make(pure, [0, 1])
    in_sync(pure, 0)
    reassign(pure, [0, 2])
    assert moving(pure) == ((0, 2, 1), (2,), (1,))
    assert reassign(pure, [0, 1]).error_code == 0
    assert moving(pure) == ((0, 1), (), ())
    assert partition(pure).isr == (0,)


def test_a_leader_that_leaves_hands_over_with_the_last_step() -> None:
    pure = Pure(brokers=4)
    make(pure, [0, 1])
    reassign(pure, [2, 3])
    assert moving(pure) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert in_sync(pure, 0, 1, 2).error_code == 0
    assert moving(pure) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert in_sync(pure, 0, 1, 2, 3).error_code == ErrorCode.NEW_LEADER_ELECTED
    assert moving(pure) == ((2, 3), (), ())
    found = partition(pure)
    assert (found.leader, found.isr, found.leader_epoch) == (2, (2, 3), 1)


def test_another_order_is_done_at_once() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    assert reassign(pure, [2, 1, 0]).error_code == 0
    assert moving(pure) == ((2, 1, 0), (), ())
    assert (partition(pure).leader, partition(pure).leader_epoch) == (0, 0)
    before = partition(pure)
    assert reassign(pure, [2, 1, 0]).error_code == 0
    assert partition(pure) == before


def test_fewer_replicas_are_done_at_once_when_those_that_stay_are_in_sync() -> None:
    pure = Pure(brokers=3)
    make(pure, [0, 1, 2])
    reassign(pure, [1, 2])
    assert moving(pure) == ((1, 2), (), ())
    found = partition(pure)
    assert (found.leader, found.isr, found.leader_epoch) == (1, (1, 2), 1)
    in_sync(pure, 1)
    reassign(pure, [2])
    assert moving(pure) == ((2, 1), (), (1,))
    assert partition(pure).leader == 1
    in_sync(pure, 1, 2)
    assert (moving(pure), partition(pure).leader) == (((2,), (), ()), 2)


def test_a_broker_that_is_fenced_ends_no_reassignment() -> None:
    pure = Pure(brokers=4)
    make(pure, [0, 1])
    reassign(pure, [2, 3])
    in_sync(pure, 0, 1, 2)
    beat(pure, 3, want_fence=True)
    assert moving(pure) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert in_sync(pure, 0, 1, 2, 3).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_reassignment_is_called_back() -> None:
    pure = Pure(brokers=4)
    make(pure, [0, 1])
    refused = reassign(pure, None)
    assert (refused.error_code, refused.error_message) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    reassign(pure, [2, 3])
    in_sync(pure, 0, 1, 2)
    assert reassign(pure, None).error_code == 0
    assert moving(pure) == ((0, 1), (), ())
    found = partition(pure)
    assert (found.leader, found.isr, found.leader_epoch) == (0, (0, 1), 1)
    assert ongoing(pure) == []


def test_calling_back_may_need_an_unclean_election() -> None:
    pure = Pure(brokers=4)
    make(pure, [0, 1])
    reassign(pure, [2, 3])
    in_sync(pure, 0, 2)
    beat(pure, 0, want_fence=True)
    assert (partition(pure).leader, partition(pure).isr) == (2, (2,))
    refused = reassign(pure, None)
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean leader election" in refused.error_message
    key = "unclean.leader.election.enable"
    pure.replay([ConfigRecord(resource_type=2, resource_name="t", name=key, value="true")])
    assert reassign(pure, None).error_code == 0
    assert moving(pure) == ((0, 1), (), ())
    # The first of the replicas is fenced. The next live one leads, and its recovery state shows that records may be
    # lost.
    assert (partition(pure).leader, partition(pure).isr, partition(pure).leader_recovery_state) == (1, (1,), 1)


def test_a_second_reassignment_takes_the_place_of_the_first() -> None:
    pure = Pure(brokers=5)
    make(pure, [0, 1])
    reassign(pure, [2, 1])
    reassign(pure, [3, 1])
    assert moving(pure) == ((3, 1, 0, 2), (3,), (0, 2))
    in_sync(pure, 0, 1, 3)
    assert moving(pure) == ((3, 1), (), ())


@pytest.mark.parametrize(
    ("replicas", "index", "name", "code"),
    [
        ([], 0, "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0], 0, "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 9], 0, "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], 0, "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0], 7, "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, -1, "t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([0], 0, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refusals(replicas: list[int] | None, index: int, name: str, code: ErrorCode) -> None:
    pure = Pure(brokers=2)
    make(pure, [0, 1])
    before = partition(pure)
    verdict = reassign(pure, replicas, index, name)
    assert verdict.error_code == code
    assert verdict.error_message
    assert partition(pure) == before


def test_the_number_of_replicas_may_be_fixed() -> None:
    """KIP-860: during a reassignment, the number at its end counts."""
    pure = Pure(brokers=5)
    make(pure, [0, 1])
    refused = reassign(pure, [2], may_change_factor=False)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(pure, [2, 3], may_change_factor=False).error_code == 0
    assert len(partition(pure).replicas) == 4
    assert reassign(pure, [3, 4], may_change_factor=False).error_code == 0
    assert reassign(pure, [1, 3, 4], may_change_factor=False).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
