"""The pauses of the partitions of one fetcher."""

from __future__ import annotations

from pykbroker.replica.fetching.delays import Delays
from pykbroker.replica.fetching.partition_fetch import PartitionFetch
from tests.replica.fetching.leader import ModelLog


def partitions(count: int) -> list[PartitionFetch]:
    return [PartitionFetch("t", b"t" * 16, index, 1, ModelLog()) for index in range(count)]


def test_each_delay_ends_at_its_time() -> None:
    delays = Delays()
    first, second = partitions(2)
    assert delays.next_end is None
    assert delays.begin(second, 3.0)
    assert delays.begin(first, 2.0)
    assert delays.next_end == 2.0
    assert delays.end_due(1.9) == []
    assert delays.end_due(2.0) == [first]
    assert (first.is_delayed, second.is_delayed) == (False, True)
    assert delays.end_due(2.9) == []
    assert delays.end_due(3.0) == [second]


def test_a_delay_is_not_prolonged_by_the_next_error() -> None:
    delays = Delays()
    (fetch,) = partitions(1)
    delays.begin(fetch, 2.0)
    assert not delays.begin(fetch, 5.0)
    assert delays.end_due(2.0) == [fetch]


def test_all_delays_end_together_when_the_metadata_has_changed() -> None:
    delays = Delays()
    fetches = partitions(3)
    for number, fetch in enumerate(fetches):
        delays.begin(fetch, float(number))
    assert delays.end_all() == fetches
    assert not any(fetch.is_delayed for fetch in fetches)
    assert delays.next_end is None


def test_a_partition_that_has_left_gets_no_end() -> None:
    delays = Delays()
    left, stays = partitions(2)
    delays.begin(left, 1.0)
    delays.begin(stays, 2.0)
    delays.forget(left)
    assert delays.end_due(1.0) == []
    assert delays.end_due(2.0) == [stays]
