"""A share partition, case by case: what clients of Apache Kafka 4.3.1 see there, and where this machine is better."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from pykbroker.share_partitions import acknowledged_ranges, share_partition
from pykbroker.share_partitions.acknowledged_ranges import counts_of_types, runs_of_types
from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange, throttled_from
from pykbroker.share_partitions.delivery_states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeliveryRange,
    ShareLimits,
)
from pykbroker.share_partitions.share_partition import EXPIRED_PER_TURN, SharePartition, UnusableState
from pykbroker.share_partitions.state_changes import DeliveryWrite, StateChange
from pykbroker_wire.errors import ErrorCode
from tests.share_partitions.share_partition_model import Acknowledged

LIMITS = ShareLimits()
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Bench:
    """A share partition with its log, which has batches of ten records, and a clock."""

    def __init__(
        self, partition: SharePartition | None = None, limits: ShareLimits = LIMITS, batches: int = 10
    ) -> None:
        self.partition = SharePartition(0) if partition is None else partition
        self.limits = limits
        self.now_ms = 0
        self.log = [(base, base + 9) for base in range(0, batches * 10, 10)]

    def fetch(
        self,
        member: str = "m",
        most: int = 500,
        *,
        size: int = 500,
        limits_records: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[AcquiredRange]:
        at = self.partition.next_fetch_offset
        fetched = [each for each in self.log if each[1] >= at]
        ask = Acquire(member, at, fetched, most, size, limits_records, aborted)
        return self.partition.acquire(ask, self.limits, self.now_ms)

    def begin(self, first: int, last: int, *types: int, member: str = "m", is_renewal: bool = False) -> StateChange:
        return self.partition.acknowledge(
            member, [Acknowledged(first, last, types)], self.limits, self.now_ms, is_renewal=is_renewal
        )

    def error(self, first: int, last: int, *types: int, member: str = "m", is_renewal: bool = False) -> ErrorCode:
        change = self.begin(first, last, *types, member=member, is_renewal=is_renewal)
        assert change.is_whole
        assert change.error is not None
        return change.error

    def acknowledge(self, first: int, last: int, *types: int, member: str = "m") -> DeliveryWrite:
        change = self.begin(first, last, *types, member=member)
        assert change.error is None
        assert change.write is not None
        self.end(change.write)
        return change.write

    def end(self, write: DeliveryWrite, is_written: bool = True) -> StateChange:
        return self.partition.persisted(write, is_written, self.limits, self.now_ms)

    def states(self) -> list[DeliveryRange]:
        return list(self.partition.ranges())


# -- fetches ----------------------------------------------------------------------------------------------------------


def test_no_records_are_acquired_for_max_records_0() -> None:
    assert Bench().fetch(most=0) == []


def test_a_whole_batch_of_the_log_is_acquired_where_the_client_asks_for_batches() -> None:
    bench = Bench()
    assert bench.fetch(most=3) == [(0, 9, 1)]
    assert bench.partition.next_fetch_offset == 10
    assert bench.fetch(most=12, size=5) == [(10, 19, 1), (20, 29, 1)]


def test_exactly_the_number_of_records_is_acquired_where_the_client_limits_them() -> None:
    bench = Bench()
    assert bench.fetch(most=3, limits_records=True) == [(0, 2, 1)]
    assert bench.states() == [(0, 2, ACQUIRED, 1), (3, 9, AVAILABLE, 0)]
    assert bench.partition.next_fetch_offset == 3
    assert bench.fetch(most=9, limits_records=True) == [(3, 9, 1), (10, 11, 1)]


def test_the_limit_of_locks_is_overshot_to_the_end_of_a_batch_only() -> None:
    bench = Bench(limits=LIMITS._replace(record_locks=15))
    assert bench.fetch() == [(0, 19, 1)]
    assert bench.partition.in_flight_count == 20
    assert not bench.partition.can_acquire(bench.limits)
    assert bench.fetch() == []
    bench.acknowledge(5, 6, RELEASE)
    assert bench.partition.can_acquire(bench.limits), "released before the end"
    assert bench.fetch() == [(5, 6, 2)]


def test_records_that_are_done_after_one_that_is_not_count_as_locks() -> None:
    bench = Bench(limits=LIMITS._replace(record_locks=10))
    bench.fetch()
    bench.acknowledge(1, 9, ACCEPT)
    assert (bench.partition.in_flight_count, bench.partition.delivery_complete_count) == (10, 9)
    assert not bench.partition.can_acquire(bench.limits)


def test_released_records_are_fetched_before_new_ones() -> None:
    bench = Bench()
    bench.fetch(most=10)
    bench.fetch("n", most=10)
    bench.acknowledge(2, 4, RELEASE)
    assert bench.partition.next_fetch_offset == 2
    assert bench.fetch("n", most=5) == [(2, 4, 2), (20, 29, 1)]


def test_holes_between_batches_are_acquired_and_acknowledged_as_gaps() -> None:
    bench = Bench()
    bench.log = [(0, 3), (7, 7)]
    assert bench.fetch() == [(0, 7, 1)]
    bench.acknowledge(0, 7, ACCEPT, ACCEPT, ACCEPT, ACCEPT, GAP, GAP, GAP, ACCEPT)
    assert bench.partition.start_offset == 8


def test_a_batch_that_compaction_removed_is_archived() -> None:
    bench = Bench()
    bench.fetch(most=20)
    bench.acknowledge(0, 19, RELEASE)
    bench.log = bench.log[1:]
    assert bench.fetch(most=5) == [(10, 19, 2)]
    assert bench.partition.start_offset == 10


def test_aborted_batches_are_archived_and_their_markers_acquired() -> None:
    bench = Bench()
    bench.log = [(0, 2), (3, 3), (4, 6), (7, 7)]
    assert bench.fetch(aborted=[(0, 2), (4, 6)]) == [(3, 3, 1), (7, 7, 1)]
    assert bench.partition.start_offset == 3
    assert bench.states() == [(3, 3, ACQUIRED, 1), (4, 6, ARCHIVED, 1), (7, 7, ACQUIRED, 1)]


def test_only_a_marker_is_acquired_after_an_abort_at_the_end() -> None:
    bench = Bench()
    bench.log = [(0, 7), (8, 8)]
    assert bench.fetch(aborted=[(0, 7)]) == [(8, 8, 1)]
    assert bench.partition.start_offset == 8


def test_an_answer_that_was_not_sent_leaves_no_lock_and_no_delivery() -> None:
    bench = Bench()
    found = bench.fetch(most=10)
    bench.fetch("n", most=10)
    bench.partition.give_back("m", found)
    bench.partition.give_back("m", [AcquiredRange(10, 19, 1)])
    bench.partition.give_back("unknown", found)
    assert bench.states() == [(0, 9, AVAILABLE, 0), (10, 19, ACQUIRED, 1)]
    assert bench.fetch("n", most=4) == [(0, 9, 1)]


def test_an_answer_that_was_not_sent_leaves_what_its_member_has_acquired_again() -> None:
    """The member has connected again, and the end of its first session has released the records."""
    bench = Bench()
    found = bench.fetch(most=10)
    bench.acknowledge(0, 9, RELEASE)
    again = bench.fetch(most=10)
    assert (found, again) == ([(0, 9, 1)], [(0, 9, 2)])
    bench.partition.give_back("m", found)
    assert bench.states() == [(0, 9, ACQUIRED, 2)]
    bench.partition.give_back("m", again)
    assert bench.states() == [(0, 9, AVAILABLE, 1)]


# -- the delivery limit -----------------------------------------------------------------------------------------------


def test_a_record_is_released_four_times_and_then_archived() -> None:
    bench = Bench()
    for count in (1, 2, 3, 4, 5):
        found = bench.fetch(most=1, limits_records=True)
        assert found == [(0, 0, count)]
        bench.acknowledge(0, 0, RELEASE)
    assert bench.partition.start_offset == 1


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        (2, {1: 10, 2: 10}),
        (3, {1: 10, 2: 10, 3: 1}),
        (5, {1: 10, 2: 10, 3: 10, 4: 5, 5: 1}),
        (6, {1: 10, 2: 10, 3: 10, 4: 5, 5: 2, 6: 1}),
    ],
)
def test_deliveries_are_throttled_near_the_limit(limit: int, most: dict[int, int]) -> None:
    """Each batch is delivered, and released, before the next is fetched. The records at the lowest offset come first,
    so a part goes through all its deliveries before the next one gets its turn."""
    bench = Bench(limits=LIMITS._replace(delivery_count=limit), batches=1)
    found: dict[int, list[int]] = {}
    while (acquired := bench.fetch()) != []:
        for first, last, count in acquired:
            found.setdefault(count, []).append(last - first + 1)
            bench.acknowledge(first, last, RELEASE)
    assert {count: sum(each) for count, each in found.items()} == dict.fromkeys(most, 10)
    assert {count: max(each) for count, each in found.items()} == most


def test_half_the_limit_is_where_throttling_begins() -> None:
    assert [throttled_from(limit) for limit in (2, 3, 4, 5, 6, 10)] == [2, 2, 2, 3, 3, 5]


def test_a_limit_that_is_lowered_acts_on_the_next_release() -> None:
    bench = Bench()
    bench.fetch(most=10)
    bench.acknowledge(0, 9, RELEASE)
    bench.fetch(most=10)
    bench.limits = LIMITS._replace(delivery_count=2)
    assert bench.acknowledge(0, 9, RELEASE).ranges == [(0, 9, ARCHIVED, 2)]


# -- acknowledgements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "acknowledged",
    [
        [Acknowledged(0, 0, [5])],
        [Acknowledged(0, 0, [-1])],
        [Acknowledged(1, 0, [ACCEPT])],
        [Acknowledged(0, 0, [])],
        [Acknowledged(0, 2, [ACCEPT, ACCEPT])],
        [Acknowledged(5, 6, [ACCEPT]), Acknowledged(0, 1, [ACCEPT])],
        [Acknowledged(0, 0, [RENEW])],
    ],
    ids=["type 5", "type -1", "first after last", "no types", "two types for three", "descending", "no flag to renew"],
)
def test_malformed_ranges_are_refused_before_any_is_acknowledged(acknowledged: list[Acknowledged]) -> None:
    bench = Bench()
    bench.fetch(most=10)
    change = bench.partition.acknowledge("m", [*acknowledged], LIMITS, 0)
    assert (change.error, change.write) == (ErrorCode.INVALID_REQUEST, None)
    assert bench.states() == [(0, 9, ACQUIRED, 1)]


def test_a_range_may_begin_where_the_one_before_ends_but_not_acknowledge_twice() -> None:
    bench = Bench()
    bench.fetch(most=10)
    ranges = [Acknowledged(0, 3, [ACCEPT]), Acknowledged(3, 5, [ACCEPT])]
    change = bench.partition.acknowledge("m", ranges, LIMITS, 0)
    assert change.error == ErrorCode.INVALID_RECORD_STATE
    assert bench.states() == [(0, 9, ACQUIRED, 1)]


def test_ranges_after_what_was_acquired_are_invalid_requests() -> None:
    bench = Bench()
    assert bench.error(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE, "nothing was ever fetched"
    bench.fetch(most=10)
    assert bench.error(5, 10, ACCEPT) == ErrorCode.INVALID_REQUEST
    assert bench.error(10, 12, ACCEPT) == ErrorCode.INVALID_REQUEST


def test_offsets_before_the_start_are_ignored() -> None:
    bench = Bench()
    bench.fetch(most=10)
    bench.acknowledge(0, 4, ACCEPT)
    change = bench.begin(0, 3, ACCEPT, member="n")
    assert (change.error, change.write) == (None, None)
    assert bench.acknowledge(2, 6, ACCEPT).ranges == [(5, 6, ACKNOWLEDGED, 1)]


def test_an_offset_cannot_be_acknowledged_twice_or_by_another_member() -> None:
    bench = Bench()
    bench.fetch(most=10)
    assert bench.error(0, 9, ACCEPT, member="n") == ErrorCode.INVALID_RECORD_STATE
    bench.fetch("n", most=10)
    assert bench.error(0, 9, ACCEPT, member="n") == ErrorCode.INVALID_RECORD_STATE
    bench.acknowledge(3, 3, ACCEPT)
    assert bench.error(3, 3, ACCEPT) == ErrorCode.INVALID_RECORD_STATE


def test_one_bad_offset_undoes_the_whole_acknowledgement_but_renewals() -> None:
    bench = Bench()
    bench.fetch(most=10)
    bench.acknowledge(7, 7, RELEASE)
    bench.now_ms = 1_000
    assert bench.error(0, 9, *[RENEW, RENEW, *[ACCEPT] * 8], is_renewal=True) == ErrorCode.INVALID_RECORD_STATE
    assert bench.states() == [(0, 6, ACQUIRED, 1), (7, 7, AVAILABLE, 1), (8, 9, ACQUIRED, 1)]
    assert list(bench.partition.locks()) == [(0, 1, "m", 31_000), (2, 6, "m", 30_000), (8, 9, "m", 30_000)]
    assert bench.partition.delivery_complete_count == 0


def test_renewals_are_refused_where_the_group_forbids_them() -> None:
    bench = Bench(limits=LIMITS._replace(allows_renewal=False))
    bench.fetch(most=10)
    assert bench.error(0, 9, RENEW, is_renewal=True) == ErrorCode.INVALID_RECORD_STATE


def test_a_renewal_has_nothing_to_write_and_other_types_may_come_with_it() -> None:
    bench = Bench()
    bench.fetch(most=10)
    change = bench.begin(0, 9, RENEW, is_renewal=True)
    assert (change.error, change.write) == (None, None)
    change = bench.begin(0, 1, RENEW, ACCEPT, is_renewal=True)
    assert change.write is not None
    assert change.write.ranges == [(1, 1, ACKNOWLEDGED, 1)]


def test_records_are_neither_fetched_nor_acknowledged_while_their_write_is_out() -> None:
    bench = Bench(batches=1)
    bench.fetch()
    change = bench.begin(0, 3, RELEASE)
    assert change.write is not None
    assert bench.fetch("n") == []
    assert bench.error(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert bench.end(change.write).frees
    assert bench.fetch("n") == [(0, 3, 2)]


def test_the_start_moves_after_the_write_which_carries_the_old_one() -> None:
    bench = Bench()
    bench.fetch(most=10)
    change = bench.begin(0, 9, ACCEPT)
    assert change.write is not None
    assert (change.write.start, change.write.delivered) == (0, 10)
    assert bench.partition.start_offset == 0
    assert bench.end(change.write).frees
    assert (bench.partition.start_offset, bench.partition.delivery_complete_count) == (10, 0)


def test_a_write_that_fails_leaves_the_records_with_their_owner() -> None:
    bench = Bench()
    bench.fetch(most=10)
    change = bench.begin(0, 9, *[ACCEPT, RELEASE] * 5)
    assert change.write is not None
    bench.end(change.write, is_written=False)
    assert list(bench.partition.locks()) == [(0, 9, "m", 30_000)]
    bench.acknowledge(0, 9, ACCEPT)
    assert bench.partition.start_offset == 10


def test_a_lock_that_ends_while_its_write_is_out_is_released_if_the_write_fails() -> None:
    bench = Bench()
    bench.fetch(most=10)
    change = bench.begin(0, 9, ACCEPT)
    bench.now_ms = 30_000
    assert bench.partition.expire(LIMITS, bench.now_ms) is None
    assert change.write is not None
    assert bench.end(change.write, is_written=False).frees
    assert bench.states() == [(0, 9, AVAILABLE, 1)]


def test_a_write_is_ended_once() -> None:
    bench = Bench()
    bench.fetch(most=10)
    write = bench.acknowledge(0, 9, ACCEPT)
    with pytest.raises(AssertionError):
        bench.end(write)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_the_end_of_a_session_releases_all_its_records_and_counts_stay() -> None:
    bench = Bench()
    bench.fetch(most=10)
    bench.fetch("n", most=10)
    bench.fetch(most=10)
    bench.acknowledge(4, 4, ACCEPT)
    change = bench.partition.release("m", LIMITS, 0)
    assert change.write is not None
    assert change.write.ranges == [(0, 3, AVAILABLE, 1), (5, 9, AVAILABLE, 1), (20, 29, AVAILABLE, 1)]
    bench.end(change.write)
    assert list(bench.partition.locks()) == [(10, 19, "n", 30_000)]
    assert bench.partition.release("m", LIMITS, 0).write is None
    assert bench.partition.release("unknown", LIMITS, 0).write is None


def test_the_end_of_a_session_takes_effect_where_its_write_fails() -> None:
    """Apache Kafka 4.3 leaves such records locked until their time is over, though nobody can acknowledge them."""
    bench = Bench()
    bench.fetch(most=10)
    acknowledgement = bench.begin(0, 4, ACCEPT)
    release = bench.partition.release("m", LIMITS, 0)
    assert acknowledgement.write is not None
    assert release.write is not None
    bench.end(acknowledgement.write, is_written=False)
    bench.end(release.write, is_written=False)
    assert bench.states() == [(0, 9, AVAILABLE, 1)]


# -- time -------------------------------------------------------------------------------------------------------------


def test_locks_end_within_a_tick_and_renewed_ones_stay() -> None:
    bench = Bench(limits=LIMITS._replace(lock_duration_ms=1_490))
    bench.fetch(most=10)
    assert bench.partition.next_expiry_ms() == 1_500
    bench.now_ms = 1_000
    bench.begin(2, 3, RENEW, is_renewal=True)
    assert bench.partition.expire(bench.limits, 1_499) is None
    write = bench.partition.expire(bench.limits, 1_500)
    assert write is not None
    assert write.ranges == [(0, 1, AVAILABLE, 1), (4, 9, AVAILABLE, 1)]
    assert list(bench.partition.locks()) == [(2, 3, "m", 2_500)]
    assert bench.partition.next_expiry_ms() == 2_500
    assert bench.partition.next_fetch_offset == 0


def test_locks_end_in_turns() -> None:
    bench = Bench(SharePartition(0), LIMITS._replace(record_locks=10_000), batches=EXPIRED_PER_TURN + 44)
    bench.fetch(most=10_000, size=10)
    sizes = []
    while (due := bench.partition.next_expiry_ms()) is not None and due <= 30_000:
        write = bench.partition.expire(LIMITS, 30_000)
        assert write is not None
        sizes.append(sum(last - first + 1 for first, last, _, _ in write.ranges))
    assert sizes == [EXPIRED_PER_TURN * 10, 440]


def test_a_client_that_renews_for_ever_leaves_one_queued_deadline() -> None:
    bench = Bench()
    bench.fetch(most=10)
    for bench.now_ms in range(0, 100_000, 10):
        bench.begin(bench.now_ms // 10 % 10, bench.now_ms // 10 % 10, RENEW, is_renewal=True)
        bench.partition.expire(LIMITS, bench.now_ms)
    assert len(bench.partition._window.deadlines) <= 2
    assert [member for _, _, member, _ in bench.partition.locks()] == ["m"] * len(list(bench.partition.locks()))


def test_members_and_deadlines_that_are_gone_are_forgotten() -> None:
    bench = Bench(batches=3_000)
    for number in range(3_000):
        found = bench.fetch(f"member-{number}", most=10)
        bench.acknowledge(found[0].first, found[0].last, ACCEPT, member=f"member-{number}")
    assert len(bench.partition._owners) <= 130
    assert len(bench.partition._window.deadlines) <= 130


# -- loads and the log ------------------------------------------------------------------------------------------------


def test_a_load_goes_on_at_the_stored_counts_and_fetches_what_lies_between() -> None:
    loaded = SharePartition.load(
        5,
        [DeliveryRange(5, 9, AVAILABLE, 2), DeliveryRange(20, 29, ACKNOWLEDGED, 1), DeliveryRange(30, 34, ARCHIVED, 5)],
    )
    bench = Bench(loaded)
    assert (loaded.start_offset, loaded.end_offset, loaded.delivery_complete_count) == (5, 34, 15)
    assert bench.fetch("n", most=500) == [(5, 9, 3), (10, 19, 1), (35, 99, 1)]
    bench.acknowledge(5, 9, ACCEPT, member="n")
    assert loaded.start_offset == 10, "the start does not pass the gap"
    bench.acknowledge(10, 19, ACCEPT, member="n")
    assert loaded.start_offset == 35


def test_a_gap_that_compaction_has_emptied_does_not_hold_the_start() -> None:
    """Apache Kafka 4.3 never moves such a start again."""
    loaded = SharePartition.load(10, [DeliveryRange(21, 30, ACKNOWLEDGED, 1)])
    bench = Bench(loaded)
    bench.log = [(21, 30), (31, 40)]
    assert bench.fetch() == [(31, 40, 1)]
    assert loaded.start_offset == 31


def test_records_loaded_as_archiving_wait_and_those_loaded_as_acquired_do_not() -> None:
    loaded = SharePartition.load(0, [DeliveryRange(0, 4, ARCHIVING, 5), DeliveryRange(5, 9, ACQUIRED, 1)])
    assert (loaded.start_offset, loaded.next_fetch_offset) == (0, 5)


def test_a_stored_state_that_is_done_leaves_nothing_in_flight() -> None:
    loaded = SharePartition.load(0, [DeliveryRange(0, 9, ACKNOWLEDGED, 1)])
    assert (loaded.start_offset, loaded.end_offset, loaded.in_flight_count) == (10, 10, 0)


@pytest.mark.parametrize(
    "ranges",
    [
        [DeliveryRange(4, 9, AVAILABLE, 1)],
        [DeliveryRange(9, 8, AVAILABLE, 1)],
        [DeliveryRange(5, 9, 5, 1)],
        [DeliveryRange(5, 9, -1, 1)],
        [DeliveryRange(5, 9, AVAILABLE, -1)],
        [DeliveryRange(5, 9, AVAILABLE, 1), DeliveryRange(9, 12, AVAILABLE, 1)],
    ],
)
def test_a_damaged_state_is_refused(ranges: list[DeliveryRange]) -> None:
    with pytest.raises(UnusableState):
        SharePartition.load(5, ranges)


def test_a_huge_stored_batch_takes_memory_for_what_is_touched_only() -> None:
    loaded = SharePartition.load(0, [DeliveryRange(0, 10**12, AVAILABLE, 1)])
    used = _bytes_of(lambda: loaded.acquire(Acquire("m", 0, [(0, 9)], 500, 500), LIMITS, 0))
    assert used < 2_000_000
    assert next(iter(loaded.ranges())) == (0, 9, ACQUIRED, 2)


def test_the_start_of_the_log_moves_over_locks_and_writes_that_are_out() -> None:
    bench = Bench()
    bench.fetch(most=20)
    change = bench.begin(5, 9, ACCEPT)
    bench.partition.move_start(15)
    assert bench.states() == [(15, 19, ACQUIRED, 1)]
    assert change.write is not None
    bench.end(change.write)
    change = bench.begin(0, 14, ACCEPT)
    assert (change.error, change.write) == (None, None)
    bench.partition.move_start(50)
    assert (bench.partition.start_offset, bench.partition.next_fetch_offset) == (50, 50)
    bench.partition.move_start(3)
    assert bench.partition.start_offset == 50
    write = bench.partition.start_write()
    assert (write.start, write.ranges) == (50, [])


# -- bounds -----------------------------------------------------------------------------------------------------------


def _bytes_of(make: Callable[[], object]) -> int:
    """Return the bytes that a call leaves allocated."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return after - before


def test_a_record_of_a_batch_takes_at_most_16_bytes() -> None:
    log = [(base, base + 99) for base in range(0, 100_000, 100)]
    limits = LIMITS._replace(record_locks=10**6)
    partition = SharePartition(0)
    used = _bytes_of(lambda: partition.acquire(Acquire("m", 0, log, 10**6, 100), limits, 0) and None)
    assert len(partition._window) == 1_000
    assert used / 100_000 <= 16


@pytest.mark.parametrize("size", [20, 500])
def test_a_record_with_a_state_of_its_own_takes_at_most_64_bytes(size: int) -> None:
    """Every other record is accepted, so that no two neighbours are equal."""
    log = [(base, base + size - 1) for base in range(0, 20_000, size)]
    limits = LIMITS._replace(record_locks=10**6)
    partition = SharePartition(0)

    def fill() -> None:
        partition.acquire(Acquire("m", 0, log, 10**6, size), limits, 0)
        change = partition.acknowledge("m", [Acknowledged(0, 19_999, [RELEASE, ACCEPT] * 10_000)], limits, 0)
        while not change.go_on():
            pass
        assert change.write is not None
        ended = partition.persisted(change.write, True, limits, 0)
        while not ended.go_on():
            pass

    used = _bytes_of(fill)
    assert all(batch.is_tracked for batch in partition._window)
    assert used / 20_000 <= 64


def test_100000_ranges_are_acknowledged_in_turns_and_other_members_go_on() -> None:
    limits = LIMITS._replace(record_locks=200_000)
    partition = SharePartition(0)
    partition.acquire(Acquire("m", 0, [(0, 99_999)], 10**6, 10**6), limits, 0)
    partition.acquire(Acquire("n", 100_000, [(100_000, 100_009)], 10**6, 10**6), limits, 0)
    ranges = [Acknowledged(at, at, [RELEASE if at % 2 else ACCEPT]) for at in range(100_000)]
    change = partition.acknowledge("m", ranges, limits, 0)
    turns = 1
    while not change.go_on():
        turns += 1
        if turns == 80:
            other = partition.acknowledge("n", [Acknowledged(100_000, 100_009, [ACCEPT])], limits, 0)
            assert other.write is not None
            partition.persisted(other.write, True, limits, 0)
    assert turns >= 2 * 100_000 // acknowledged_ranges.PER_TURN
    assert change.write is not None
    assert len(change.write.ranges) == 100_000
    ended = partition.persisted(change.write, True, limits, 0)
    while not ended.go_on():
        assert partition.start_offset == 0
    assert (partition.start_offset, partition.next_fetch_offset) == (1, 1)


@pytest.mark.parametrize(
    ("ranges", "turns"),
    [
        ([Acknowledged(at, at, [ACCEPT]) for at in range(100_000)], 2 * 100_000 // acknowledged_ranges.PER_TURN),
        ([Acknowledged(0, 999_999, [ACCEPT, REJECT] * 500_000)], 2),
        ([Acknowledged(at, at + 999, [ACCEPT] * 1_000) for at in range(0, 1_000_000, 1_000)], 2),
    ],
    ids=["ranges", "types", "both"],
)
def test_ranges_before_the_start_need_turns_too(ranges: list[Acknowledged], turns: int) -> None:
    change = SharePartition(1_000_000).acknowledge("m", ranges, LIMITS, 0)
    taken = 1
    while not change.is_whole:
        change.go_on()
        taken += 1
    assert taken >= turns
    assert (change.error, change.write) == (None, None)


def test_types_before_the_start_make_no_runs() -> None:
    types = [ACCEPT, REJECT] * 500
    assert list(runs_of_types(Acknowledged(0, 999, types), 1_000)) == []
    assert list(runs_of_types(Acknowledged(0, 999, types), 997)) == [
        (997, 997, REJECT),
        (998, 998, ACCEPT),
        (999, 999, REJECT),
    ]
    assert list(runs_of_types(Acknowledged(0, 999, [ACCEPT]), 997)) == [(997, 999, ACCEPT)]
    assert list(runs_of_types(Acknowledged(5, 6, [ACCEPT, REJECT]), 3)) == [(5, 5, ACCEPT), (6, 6, REJECT)]


def test_a_range_that_is_out_of_reach_makes_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partition, "runs_of_types", None)
    change = SharePartition(0).acknowledge("m", [Acknowledged(0, 999, [ACCEPT, REJECT] * 500)], LIMITS, 0)
    assert change.error is ErrorCode.INVALID_RECORD_STATE


def test_ranges_of_100000_records_with_a_bad_one_at_the_end_are_undone_in_turns() -> None:
    limits = LIMITS._replace(record_locks=200_000)
    partition = SharePartition(0)
    partition.acquire(Acquire("m", 0, [(0, 99_999)], 10**6, 10**6), limits, 0)
    ranges = [Acknowledged(at, at, [RELEASE if at % 2 else ACCEPT]) for at in range(100_000)]
    change = partition.acknowledge("m", [*ranges, Acknowledged(100_000, 100_000, [ACCEPT])], limits, 0)
    while not change.go_on():
        pass
    assert change.error == ErrorCode.INVALID_REQUEST
    assert [lock[2:] for lock in partition.locks()] == [("m", 30_000)] * 2
    assert sum(last - first + 1 for first, last, _, _ in partition.locks()) == 100_000


def test_many_lists_of_types_are_counted_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 calls would hold the loop for a sixth of a second."""
    calls: list[int] = []

    def counted(types: Sequence[int]) -> Counter[int]:
        calls.append(1)
        return Counter(types)

    monkeypatch.setattr(acknowledged_ranges, "Counter", counted)
    several = [Acknowledged(2 * at, 2 * at + 1, [ACCEPT, REJECT]) for at in range(1_000)]
    assert counts_of_types([*several, Acknowledged(5_000, 5_009, [RELEASE])]) == [0, 1_000, 10, 1_000, 0]
    assert len(calls) == 1
