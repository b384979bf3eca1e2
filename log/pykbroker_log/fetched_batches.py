"""The batches of a read, by their headers, and a part of the read without copying it.

A reader that decides by batches (a share group acquires offsets) needs the offsets of each batch in a slice, and then
sends only some of them. A region is not read as a whole for this: its headers are, in pieces.

Not responsible for the records in a batch, nor for their CRC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pykbroker_log.disk import ColdRead, Region
from pykbroker_log.results import ReadResult
from pykbroker_log.slices import REGION_BYTES, Slice
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_wire.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL,
    CorruptBatch,
)

#: One read of a region gets the headers of this many bytes, unless batches are larger.
_WALK_BYTES: Final = 8 * 1024


class FetchedBatch(NamedTuple):
    """A batch of a slice: its place from `position` to `end`, its offsets, and the producer of a data batch that
    belongs to a transaction, or -1 for any other batch."""

    position: int
    end: int
    first_offset: int
    last_offset: int
    producer_id: int


def batches_of(read: ReadResult, *, wait: bool) -> Iterator[FetchedBatch]:
    """Yield the whole batches of a read that has one slice or none. Raises CorruptBatch, OSError, and ColdRead unless
    `wait`."""
    if not read.slices:
        return
    (data,) = read.slices
    size = len(data)
    chunk, chunk_start = (data, 0) if isinstance(data, bytes) else (b"", 0)
    position, step = 0, _WALK_BYTES
    while position + HEADER_SIZE <= size:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk) and not isinstance(data, bytes):
            chunk_start, at = position, 0
            chunk = _pread(data, position, min(step, size - position), wait)
        fields = HEADER.unpack_from(chunk, at)
        length, attributes = fields[1], fields[5]
        if fields[3] != MAGIC or length < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"no batch at position {position} of a read from offset {read.first_offset}")
        end = position + LOG_OVERHEAD + length
        if end > size:
            return
        has_data = attributes & TRANSACTIONAL and not attributes & CONTROL
        yield FetchedBatch(position, end, fields[0], fields[0] + fields[6], fields[9] if has_data else -1)
        step = HEADER_SIZE if length > _WALK_BYTES else _WALK_BYTES
        position = end


def _pread(region: Region, position: int, size: int, wait: bool) -> bytes:
    if not wait and not region.is_resident(position, size):
        raise ColdRead(region, position, size)
    data = region.pread(size, position)
    if len(data) < HEADER_SIZE:
        raise CorruptBatch("the file is shorter than it was")
    return data


_last_offset = attrgetter("last_offset")


def aborted_ranges(batches: Sequence[FetchedBatch], aborted: Sequence[AbortedTxn]) -> list[tuple[int, int]]:
    """Return the first and the last offset of each batch that belongs to one of these aborted transactions, ascending.
    Control batches belong to none. `aborted` ascends, as the index of the log has it."""
    if not aborted or not batches:
        return []
    end = batches[-1].last_offset
    by_producer: dict[int, list[AbortedTxn]] = {batch.producer_id: [] for batch in batches}
    for transaction in aborted:
        if transaction.first_offset <= end and (of_producer := by_producer.get(transaction.producer_id)) is not None:
            of_producer.append(transaction)
    return [
        (batch.first_offset, batch.last_offset)
        for batch in batches
        if _is_within(batch, by_producer[batch.producer_id])
    ]


def _is_within(batch: FetchedBatch, transactions: Sequence[AbortedTxn]) -> bool:
    """Return True if one of these transactions of its producer has the batch. They ascend and do not overlap."""
    place = bisect_right(transactions, batch.last_offset, key=_last_offset)
    return place < len(transactions) and transactions[place].first_offset <= batch.first_offset


def part_of(data: Slice, start: int, end: int) -> Slice:
    """Return the bytes from `start` to `end` of a slice. A part of a region is a region of the same file; it is read
    instead if it is small and in memory. Never waits for the device."""
    size = end - start
    if size == len(data):
        return data
    if isinstance(data, bytes):
        return data[start:end]
    if size < REGION_BYTES and (small := _small(data, start, size)) is not None:
        return small
    return data.part(start, size)


def _small(region: Region, position: int, size: int) -> bytes | None:
    try:
        if not region.is_resident(position, size):
            return None
        data = region.pread(size, position)
    except OSError:
        # The sender of the region meets the error too.
        return None
    return data if len(data) == size else None
