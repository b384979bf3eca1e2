"""`.index`, `.timeindex`, `.txnindex` and `.snapshot` files as Apache Kafka's DumpLogSegments prints them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from pykbroker.tools.dump.file_batches import batches
from pykbroker_log.disk import FileReader
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.producers import CorruptProducerSnapshot, decode_snapshot
from pykbroker_log.time_index import TimeIndex
from pykbroker_log.txn_index import ENTRY as TXN_ENTRY
from pykbroker_wire.records.record import iter_records


class BadIndex(ValueError):
    """An index cannot be read. The text is for the user."""


@dataclass(slots=True, frozen=True)
class IndexOptions:
    """`sanity_only`: make the checks that a start makes, and print no entry. `verify_only`: compare the entries with
    the log, and print none."""

    sanity_only: bool = False
    verify_only: bool = False
    max_message_bytes: int = 5 << 20


@dataclass(slots=True)
class Complaints:
    """The differences between an index file and its log: pairs of the index's number and the log's number."""

    mismatches: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)


def index_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return offsets and positions, without the zeros of a preallocated file."""
    found: list[tuple[int, int]] = []
    for key, position in OffsetIndex.ENTRY.iter_unpack(_whole(data, OffsetIndex.ENTRY.size)):
        if found and not key:
            break
        found.append((base_offset + key, position))
    return found


def time_entries(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """Return timestamps and offsets, without the zeros of a preallocated file."""
    found: list[tuple[int, int]] = []
    for timestamp, key in TimeIndex.ENTRY.iter_unpack(_whole(data, TimeIndex.ENTRY.size)):
        if found and not key:
            break
        found.append((timestamp, base_offset + key))
    return found


def _whole(data: bytes, size: int) -> bytes:
    return data[: len(data) - len(data) % size]


def dump_index(
    path: str, data: bytes, base_offset: int, log: FileReader, options: IndexOptions, said: Complaints
) -> Iterator[str]:
    if not data:
        yield f"{path} is empty."
        return
    if options.sanity_only:
        _check_size(data, OffsetIndex.ENTRY.size)
        last, _ = OffsetIndex.ENTRY.unpack_from(data, len(data) - OffsetIndex.ENTRY.size)
        if last < 0:
            raise BadIndex(f"the last offset {base_offset + last} is less than the base offset {base_offset}")
        yield f"{path} passed sanity check."
        return
    for offset, position in index_entries(data, base_offset):
        found = next(iter(batches(log, position, position + options.max_message_bytes)), None)
        if found is None:
            if (offset, position) == (base_offset, 0):
                return  # preallocated, and nothing was written
            raise BadIndex(f"there is no batch of at most {options.max_message_bytes} bytes at {position}")
        if found.header.last_offset != offset:
            said.mismatches.append((offset, found.header.last_offset))
        if not options.verify_only:
            yield f"offset: {offset} position: {position}"


def dump_time_index(
    path: str, data: bytes, base_offset: int, index: bytes, log: FileReader, options: IndexOptions, said: Complaints
) -> Iterator[str]:
    """Yield the lines of a time index. `index` is the content of the offset index of the same segment."""
    entries = time_entries(data, base_offset)
    if options.sanity_only:
        _check_size(data, TimeIndex.ENTRY.size)
        if data:
            last, key = TimeIndex.ENTRY.unpack_from(data, len(data) - TimeIndex.ENTRY.size)
            if last < entries[0][0] or key < 0:
                raise BadIndex(f"the last entry ({last}, {base_offset + key}) is before the first one")
        yield f"{path} passed sanity check."
        return
    offsets = index_entries(index, base_offset)
    previous = -1
    for timestamp, offset in entries:
        before = bisect_right(offsets, offset, key=lambda entry: entry[0])
        position = offsets[before - 1][1] if before else 0
        batch = next((one for one in batches(log, position) if one.header.last_offset >= offset), None)
        if batch is None or batch.header.last_offset != offset:
            said.not_found.append((offset, -1 if batch is None else batch.header.last_offset))
        else:
            newest = max((record.timestamp for record in iter_records(batch.data, 0, batch.header)), default=-1)
            if newest != timestamp:
                said.mismatches.append((timestamp, newest))
            if previous >= timestamp:
                said.out_of_order.append((timestamp, previous))
        if not options.verify_only:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def _check_size(data: bytes, size: int) -> None:
    if len(data) % size:
        raise BadIndex(f"{len(data)} bytes are not a multiple of {size}")


def dump_txn_index(data: bytes) -> Iterator[str]:
    _check_size(data, TXN_ENTRY.size)
    for version, producer_id, first_offset, last_offset, last_stable_offset in TXN_ENTRY.iter_unpack(data):
        if version != 0:
            raise BadIndex(f"an entry of unknown version {version}")
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} "
            f"lastStableOffset: {last_stable_offset}"
        )


def dump_producers(data: bytes) -> Iterator[str]:
    try:
        entries = list(decode_snapshot(data))
    except CorruptProducerSnapshot as error:
        raise BadIndex(str(error)) from error
    for entry in entries:
        first = f"OptionalLong[{entry.txn_first_offset}]" if entry.txn_first_offset >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {first} lastTimestamp: {entry.last_timestamp}"
        )
        for batch in entry.batches:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
            )
        yield line
