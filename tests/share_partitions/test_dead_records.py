"""Records that become dead letters, case by case: what Apache Kafka 4.4 does, and where this machine differs."""

from __future__ import annotations

import pytest

from pykbroker.share_partitions import acknowledged_ranges
from pykbroker.share_partitions.acquisition import Acquire
from pykbroker.share_partitions.delivery_states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    TRANSITIONS,
    DeadRange,
    DeliveryRange,
    ShareLimits,
    add_dead,
)
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker.share_partitions.state_changes import StateChange
from pykbroker_wire.errors import ErrorCode
from tests.share_partitions.share_partition_model import Acknowledged

LIMITS = ShareLimits(dead_letters=True)
GAP, ACCEPT, RELEASE, REJECT = range(4)


def acquired(size: int = 10, limits: ShareLimits = LIMITS) -> SharePartition:
    """Return a share partition whose member `m` has one batch of this size."""
    partition = SharePartition(0)
    partition.acquire(Acquire("m", 0, [(0, size - 1)], 10**6, 10**6), limits, 0)
    return partition


def settled(partition: SharePartition, first: int, last: int, *types: int, limits: ShareLimits = LIMITS) -> StateChange:
    """Acknowledge, and return the end of the change after its write."""
    change = partition.acknowledge("m", [Acknowledged(first, last, types)], limits, 0)
    while not change.go_on():
        pass
    assert (change.error, change.dead) == (None, [])
    assert change.write is not None
    ended = partition.persisted(change.write, True, limits, 0)
    while not ended.go_on():
        pass
    return ended


def test_a_rejected_batch_stays_one_state_and_is_one_dead_range() -> None:
    partition = acquired(100_000, LIMITS._replace(record_locks=200_000))
    ended = settled(partition, 0, 99_999, REJECT)
    assert ended.dead == [(0, 99_999, 1, True)]
    assert not ended.frees
    (batch,) = partition._window
    assert not batch.is_tracked
    archived = partition.archive([(0, 99_999)])
    assert archived.write is not None
    assert archived.write.ranges == [(0, 99_999, ARCHIVED, 1)]
    assert (archived.write.start, archived.write.delivered) == (0, 100_000)
    assert archived.frees
    assert partition.start_offset == 100_000


def test_only_rejections_and_the_delivery_limit_make_dead_records() -> None:
    partition = acquired()
    ended = settled(partition, 0, 9, GAP, ACCEPT, RELEASE, REJECT, REJECT, *[RELEASE] * 5)
    assert ended.dead == [(3, 4, 1, True)]
    assert list(partition.ranges()) == [(2, 2, AVAILABLE, 1), (3, 4, ARCHIVING, 1), (5, 9, AVAILABLE, 1)]


def test_a_record_that_waits_for_its_letter_can_be_neither_acquired_nor_acknowledged() -> None:
    partition = acquired()
    settled(partition, 0, 9, *[REJECT] * 3, *[RELEASE] * 7)
    change = partition.acknowledge("m", [Acknowledged(0, 0, [ACCEPT])], LIMITS, 0)
    assert change.error is ErrorCode.INVALID_RECORD_STATE
    assert partition.next_fetch_offset == 3
    assert partition.acquire(Acquire("m", 0, [(0, 9)], 500, 500), LIMITS, 0) == [(3, 9, 2)]
    assert (partition.start_offset, partition.delivery_complete_count, partition.in_flight_count) == (0, 0, 10)


def test_compaction_and_aborted_transactions_make_no_dead_records() -> None:
    partition = SharePartition.load(0, [DeliveryRange(0, 9, AVAILABLE, 1)])
    ask = Acquire("m", 0, [(5, 9)], 500, 500, False, [(5, 6)])
    assert partition.acquire(ask, LIMITS, 0) == [(7, 9, 2)]
    assert partition.start_offset == 7
    assert partition.unfinished_letters(LIMITS) == []


def test_an_ended_lock_at_the_limit_is_written_as_archiving() -> None:
    limits = LIMITS._replace(delivery_count=2, lock_duration_ms=1_000)
    partition = SharePartition.load(0, [DeliveryRange(0, 4, AVAILABLE, 1)])
    partition.acquire(Acquire("m", 0, [(0, 9)], 500, 5), limits, 0)
    write = partition.expire(limits, 1_000)
    assert write is not None
    assert write.ranges == [(0, 4, ARCHIVING, 2), (5, 9, AVAILABLE, 1)]
    assert write.dead == [(0, 4, 2, False)]
    assert write.delivered == 0


def test_a_failed_write_gives_the_record_back_to_its_member() -> None:
    partition = acquired()
    change = partition.acknowledge("m", [Acknowledged(0, 9, [REJECT])], LIMITS, 0)
    assert change.write is not None
    ended = partition.persisted(change.write, False, LIMITS, 0)
    assert ended.dead == []
    assert list(partition.ranges()) == [(0, 9, ACQUIRED, 1)]


def test_a_lock_that_has_ended_when_the_write_fails_leaves_a_dead_record_at_the_limit() -> None:
    limits = LIMITS._replace(delivery_count=2, lock_duration_ms=1_000)
    partition = SharePartition.load(0, [DeliveryRange(0, 9, AVAILABLE, 1)])
    partition.acquire(Acquire("m", 0, [(0, 9)], 500, 500), limits, 0)
    change = partition.acknowledge("m", [Acknowledged(0, 9, [ACCEPT])], limits, 0)
    assert change.write is not None
    ended = partition.persisted(change.write, False, limits, 2_000)
    assert ended.dead == [(0, 9, 2, False)]
    assert list(partition.ranges()) == [(0, 9, ARCHIVING, 2)]


def test_a_refused_acknowledgement_reports_dead_records_whose_locks_have_ended() -> None:
    limits = LIMITS._replace(delivery_count=2, lock_duration_ms=1_000)
    partition = SharePartition.load(0, [DeliveryRange(0, 9, AVAILABLE, 1)])
    partition.acquire(Acquire("m", 0, [(0, 9)], 500, 500), limits, 0)
    change = partition.acknowledge("m", [Acknowledged(0, 4, [ACCEPT]), Acknowledged(9, 12, [ACCEPT])], limits, 2_000)
    assert change.error is ErrorCode.INVALID_REQUEST
    assert change.dead == [(0, 4, 2, False)]


def test_the_start_of_the_log_takes_records_from_their_archival_but_not_from_their_letters() -> None:
    partition = acquired()
    change = partition.acknowledge("m", [Acknowledged(0, 9, [REJECT])], LIMITS, 0)
    assert change.write is not None
    partition.move_start(4)
    assert partition.persisted(change.write, True, LIMITS, 0).dead == [(0, 9, 1, True)]
    archived = partition.archive([(0, 9)])
    assert archived.write is not None
    assert archived.write.ranges == [(4, 9, ARCHIVED, 1)]
    assert partition.archive([(0, 9)]).write is None


def test_a_loaded_state_tells_its_dead_records_and_guesses_their_reasons() -> None:
    limits = LIMITS._replace(delivery_count=3)
    ranges = [
        DeliveryRange(0, 1, ARCHIVING, 1),
        DeliveryRange(2, 4, ARCHIVING, 1),
        DeliveryRange(5, 5, AVAILABLE, 1),
        DeliveryRange(8, 9, ARCHIVING, 3),
    ]
    partition = SharePartition.load(0, ranges)
    assert partition.unfinished_letters(limits) == [(0, 4, 1, True), (8, 9, 3, False)]
    assert (partition.start_offset, partition.next_fetch_offset) == (0, 5)


def test_dead_ranges_join_if_they_are_equal_neighbours() -> None:
    ranges: list[DeadRange] = []
    for new in (
        DeadRange(0, 1, 1, True),
        DeadRange(2, 2, 1, True),
        DeadRange(3, 3, 2, True),
        DeadRange(4, 4, 2, False),
        DeadRange(6, 6, 2, False),
    ):
        add_dead(ranges, new)
    assert ranges == [(0, 2, 1, True), (3, 3, 2, True), (4, 4, 2, False), (6, 6, 2, False)]


def test_100000_records_are_archived_in_turns() -> None:
    limits = LIMITS._replace(record_locks=200_000)
    partition = acquired(100_000, limits)
    ended = settled(partition, 0, 99_999, *[REJECT, ACCEPT] * 50_000, limits=limits)
    assert len(ended.dead) == 50_000
    change = partition.archive([(each.first, each.last) for each in ended.dead])
    turns = 1
    while not change.go_on():
        turns += 1
    assert turns >= 50_000 // acknowledged_ranges.PER_TURN
    assert change.write is not None
    assert len(change.write.ranges) == 50_000
    assert partition.start_offset == 100_000


@pytest.mark.parametrize("state", [AVAILABLE, ACQUIRED, ACKNOWLEDGED])
def test_archiving_leads_to_archived_only(state: int) -> None:
    assert (ARCHIVING, state) not in TRANSITIONS
    assert [after for before, after in TRANSITIONS if before == ARCHIVING] == [ARCHIVED]
