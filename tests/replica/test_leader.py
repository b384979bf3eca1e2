"""The leader's view of its followers by itself."""

from __future__ import annotations

import pytest

from pykbroker.replica.leader import PartitionLeader
from pykbroker_wire.errors import ErrorCode, KafkaError


def test_alone_everything_that_was_written_is_committed() -> None:
    leader = PartitionLeader(1, (1, 2), (1,))
    assert leader.is_alone
    assert leader.committed(3, 7) == 7


def test_d2_what_every_in_sync_replica_has_fetched_is_committed() -> None:
    leader = PartitionLeader(1, (1, 2, 3), (1, 2, 3))
    assert not leader.is_alone
    assert leader.committed(0, 7) == 0
    assert leader.note_fetched(2, 5)
    assert leader.committed(0, 7) == 0
    assert leader.note_fetched(3, 4)
    assert leader.committed(0, 7) == 4
    leader.change((1, 2, 3), (1, 2))
    assert leader.committed(4, 7) == 5


def test_a_follower_that_fetches_again_from_where_it_was_proves_nothing_new() -> None:
    leader = PartitionLeader(1, (1, 2), (1, 2))
    assert leader.note_fetched(2, 5)
    assert not leader.note_fetched(2, 5)
    assert not leader.note_fetched(2, 3)
    assert leader.committed(0, 7) == 5


def test_no_commit_is_taken_back() -> None:
    leader = PartitionLeader(1, (1, 2), (1, 2))
    assert leader.committed(6, 7) == 6


@pytest.mark.parametrize(
    ("isr", "configured", "enough"), [((1, 2), 2, True), ((1,), 2, False), ((1, 2), 3, True), ((1,), 1, True)]
)
def test_acks_all_asks_for_no_more_replicas_than_there_are(isr: tuple[int, ...], configured: int, enough: bool) -> None:
    leader = PartitionLeader(1, (1, 2), isr)
    assert leader.has_enough_replicas(configured) is enough
    assert leader.min_isr(configured) == min(configured, 2)


def test_only_a_replica_reads_as_one() -> None:
    leader = PartitionLeader(1, (1, 2), (1,))
    leader.require_replica(2)
    with pytest.raises(KafkaError) as refused:
        leader.require_replica(3)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
