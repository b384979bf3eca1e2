"""The batches of a read, of bytes and of a region, and a part of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_log.disk import ColdRead
from pykbroker_log.fetched_batches import FetchedBatch, aborted_ranges, batches_of, part_of
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.results import ReadResult
from pykbroker_log.slices import REGION_BYTES, Slice
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_wire.records.batch import CorruptBatch, build_batch, stamp
from tests.log.regions import BrokenRegion, CountingRegion


def written(*batches: tuple[int, int], **fields: int | bool) -> bytes:
    """Return batches from offset 0 on, each with a number of records and the size of their values."""
    parts, offset = [], 0
    for count, size in batches:
        data = bytearray(build_batch([(None, b"v" * size, (), 0)] * count, **fields))  # type: ignore[arg-type]
        stamp(data, 0, offset, 0)
        parts.append(bytes(data))
        offset += count
    return b"".join(parts)


def read_of(data: Slice) -> ReadResult:
    return ReadResult([data], len(data), 0, 0, 0)


def found(data: Slice, *, wait: bool = False) -> list[FetchedBatch]:
    return list(batches_of(read_of(data), wait=wait))


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from((0, 10, 1_000, 9_000))), max_size=30))
def test_a_region_has_the_same_batches_as_its_bytes(batches: list[tuple[int, int]]) -> None:
    data = written(*batches)
    of_bytes = found(data)
    assert [each.last_offset - each.first_offset + 1 for each in of_bytes] == [count for count, _ in batches]
    assert [each.end for each in of_bytes][:-1] == [each.position for each in of_bytes][1:]
    assert of_bytes == found(CountingRegion(data))


def test_a_read_without_records_has_no_batches() -> None:
    assert list(batches_of(ReadResult([], 0, 0, 0, -1), wait=False)) == []


def test_large_batches_are_not_read_as_a_whole() -> None:
    region = CountingRegion(written(*[(1, 100_000)] * 10))
    assert len(found(region)) == 10
    assert region.read_bytes < 10_000


def test_only_the_batches_that_are_wanted_are_read() -> None:
    region = CountingRegion(written(*[(1, 9_000)] * 100))
    walk = batches_of(read_of(region), wait=False)
    assert next(walk).last_offset == 0
    assert next(walk).last_offset == 1
    assert region.read_bytes < 20_000


def test_headers_that_are_not_in_memory_are_loaded_first() -> None:
    region = CountingRegion(written((2, 10)), cold=True)
    with pytest.raises(ColdRead) as cold:
        found(region)
    cold.value.source.load(cold.value.offset, cold.value.length)
    assert len(found(region)) == 1
    assert len(found(CountingRegion(region.data, cold=True), wait=True)) == 1


@pytest.mark.parametrize("at", [16, 8])
def test_bytes_that_are_no_batch(at: int) -> None:
    data = bytearray(written((2, 10), (2, 10)))
    data[at : at + 4] = bytes(4)
    with pytest.raises(CorruptBatch):
        found(bytes(data))


def test_a_file_that_was_cut_off() -> None:
    region = CountingRegion(written((1, 9_000), (1, 9_000)))
    region.data, whole = region.data[:9_000], len(region)
    region.__class__ = type("Cut", (CountingRegion,), {"__len__": lambda self: whole})
    with pytest.raises(CorruptBatch):
        found(region)


def test_batches_of_aborted_transactions() -> None:
    data = [
        (0, 1, 7),  # belongs to an aborted transaction
        (2, 3, -1),
        (4, 5, 8),  # committed: no other producer's transaction counts
        (6, 6, 7),
        (7, 7, -1),  # the marker
        (8, 9, 7),  # the next transaction of this producer
    ]
    batches = [FetchedBatch(0, 0, *each) for each in data]
    assert aborted_ranges(batches, [AbortedTxn(7, 0, 7, 0), AbortedTxn(9, 0, 100, 0)]) == [(0, 1), (6, 6)]
    assert aborted_ranges(batches, []) == []


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans(), st.booleans()), max_size=60))
def test_the_fast_rule_for_aborted_batches_is_the_slow_one(steps: list[tuple[int, int, bool, bool]]) -> None:
    """A step is a batch of a producer, which may be in a transaction, or else the end of its transaction."""
    batches: list[FetchedBatch] = []
    aborted: list[AbortedTxn] = []
    begun: dict[int, int] = {}
    offset = 0
    for producer, count, ends, is_aborted in steps:
        if ends:
            first = begun.pop(producer, -1)
            if first >= 0 and is_aborted:
                aborted.append(AbortedTxn(producer, first, offset, 0))
            batches.append(FetchedBatch(0, 0, offset, offset, -1))
            offset += 1
        else:
            begun.setdefault(producer, offset)
            batches.append(FetchedBatch(0, 0, offset, offset + count - 1, producer))
            offset += count
    for part in (batches, batches[len(batches) // 3 : len(batches) // 2], batches[len(batches) // 2 :]):
        assert aborted_ranges(part, aborted) == [
            (batch.first_offset, batch.last_offset)
            for batch in part
            if any(
                each.producer_id == batch.producer_id
                and each.first_offset <= batch.first_offset
                and batch.last_offset < each.last_offset
                for each in aborted
            )
        ]


def test_few_aborted_transactions_are_looked_at_for_each_batch() -> None:
    looks = 0

    class Watched(NamedTuple):
        producer_id: int
        begins: int
        ends: int

        @property
        def first_offset(self) -> int:
            nonlocal looks
            looks += 1
            return self.begins

        @property
        def last_offset(self) -> int:
            nonlocal looks
            looks += 1
            return self.ends

    batches = [FetchedBatch(0, 0, at, at, 7) for at in range(0, 2_000, 2)]
    aborted: list[Any] = [Watched(7, at, at + 1) for at in range(0, 20_000, 2)]
    assert len(aborted_ranges(batches, aborted)) == 1_000
    assert looks < len(aborted) + 15 * len(batches)


def test_only_data_of_transactions_has_a_producer() -> None:
    plain = written((1, 1), producer_id=5, producer_epoch=0, base_sequence=0)
    data = written((1, 1), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert [each.producer_id for each in (*found(plain), *found(data))] == [-1, 5]


def test_a_part_of_bytes() -> None:
    data = bytes(range(100))
    assert part_of(data, 0, 100) is data
    assert part_of(data, 10, 20) == data[10:20]


def test_a_part_of_a_region_of_the_disk(tmp_path: Path) -> None:
    contents = random.Random(1).randbytes(4 * REGION_BYTES)
    path = str(tmp_path / "segment")
    disk = OsDisk()
    file = disk.open(path, create=True)
    file.pwritev([contents], 0)
    region = file.region(100, 3 * REGION_BYTES)
    assert region is not None
    assert part_of(region, 0, len(region)) is region
    large = part_of(region, 1_000, 1_000 + 2 * REGION_BYTES)
    assert not isinstance(large, bytes)
    assert (len(large), large.pread(50, 7)) == (2 * REGION_BYTES, contents[1_107:1_157])
    assert part_of(region, 1_000, 2_000) == contents[1_100:2_100]
    file.close()
    assert large.pread(5, 0) == contents[1_100:1_105]


def test_a_small_part_that_is_not_in_memory_stays_a_region() -> None:
    region = CountingRegion(bytes(1_000), cold=True)
    part = part_of(region, 0, 10)
    assert not isinstance(part, bytes)
    assert len(part) == 10
    assert region.read_bytes == 0


def test_a_small_part_that_cannot_be_read_stays_a_region() -> None:
    part = part_of(BrokenRegion(bytes(1_000)), 0, 10)
    assert not isinstance(part, bytes)
    assert len(part) == 10


def test_headers_that_cannot_be_read_are_an_error_of_the_disk() -> None:
    with pytest.raises(OSError, match="told to fail"):
        found(BrokenRegion(written((2, 10))))
