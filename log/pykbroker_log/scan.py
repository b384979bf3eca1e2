"""The scan of a segment after a crash: every batch is checked, and the indexes are built again.

Responsible for recognizing whole batches in their places. Not responsible for the bytes after the last one
(log_loading.py), nor for producers and epochs, which only get the batches.

Invariant: a file that became shorter during the scan is an error, and never a log that ends earlier. Beyond the file's
end a memory map returns zeros up to the end of a page (os_disk/mapped.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from pykbroker_log.index import MAX_PENDING_ENTRIES
from pykbroker_wire.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from pykbroker_wire.records.crc import crc32c

if TYPE_CHECKING:
    from pykbroker_log.disk import File
    from pykbroker_log.offset_index import OffsetIndex
    from pykbroker_log.time_index import TimeIndex

_CHUNK_BYTES = 1024 * 1024

#: Called with every batch of a producer, and with the first one of each leader epoch. Returns why the batch cannot
#: stand here, or "" if it can.
BatchVisit: TypeAlias = Callable[[BatchHeader, memoryview], str]


class Scanned(NamedTuple):
    """The result of a scan: whole batches up to `size`, and `excess_bytes` after them that are none."""

    next_offset: int
    batches: int
    size: int
    excess_bytes: int
    reason: str
    """The reason why the scan ended before the end of the file; "" if it reached the end."""
    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_index: int


class ScannedSegment(Protocol):
    """The part of a segment that a scan uses."""

    base_offset: int
    index_interval_bytes: int

    @property
    def file(self) -> File: ...

    @property
    def offset_index(self) -> OffsetIndex: ...

    @property
    def time_index(self) -> TimeIndex: ...

    def offsets_from(self, offset: int) -> range: ...

    def write_indexes(self) -> None: ...

    def is_shorter(self) -> OSError: ...


def scan(segment: ScannedSegment, visit: BatchVisit, *, is_gapless: bool) -> Generator[int, None, Scanned]:
    """Check the batches up to the first bytes that are no batch, and add them to the segment's empty indexes. Yields
    the bytes that were looked at. `is_gapless`: each batch begins where the one before it ends. Raises OSError."""
    reader = segment.file.reader()
    size = reader.size()
    offset_index, time_index, interval = segment.offset_index, segment.time_index, segment.index_interval_bytes
    highest = segment.offsets_from(segment.base_offset)[-1]
    next_offset = newest_offset = segment.base_offset
    newest = leader_epoch = -1
    position = batches = since = 0
    reason = ""
    wanted = _CHUNK_BYTES
    unpack = HEADER.unpack_from
    # This loop runs once per batch of everything that a crash leaves, so it makes no call that it can avoid.
    while position < size and not reason:
        chunk = memoryview(reader.pread(wanted, position))
        at, end = 0, len(chunk)
        if end < min(wanted, size - position):
            raise segment.is_shorter()
        wanted = _CHUNK_BYTES
        while at + HEADER_SIZE <= end:
            fields = unpack(chunk, at)
            base_offset, length, epoch, magic, crc, _, last_delta, _, timestamp, producer_id, _, _, _ = fields
            after = at + LOG_OVERHEAD + length
            last_offset = base_offset + last_delta
            if magic != MAGIC or length < MIN_BATCH_LENGTH or last_delta < 0:
                reason = "not a batch"
                break
            if position + after > size:
                reason = "a batch is cut off"
                break
            if base_offset < next_offset or last_offset > highest or (is_gapless and base_offset > next_offset):
                reason = f"offset {base_offset} is out of place"
                break
            if after > end:
                wanted = max(_CHUNK_BYTES, after - at)
                break
            if crc32c(chunk[at + CRC_START : after]) != crc:
                reason = "the checksum does not match"
                break
            if producer_id >= 0 or epoch != leader_epoch:
                leader_epoch = epoch
                reason = visit(BatchHeader._make(fields), chunk[at:after])
                if reason:
                    break
            if timestamp > newest:
                newest, newest_offset = timestamp, last_offset
            if since > interval:
                offset_index.append(last_offset, position + at)
                time_index.append(newest, newest_offset)
                since = 0
            since += after - at
            next_offset = last_offset + 1
            batches += 1
            at = after
        else:
            if at == 0:
                reason = "a header is cut off"
        position += at
        if offset_index.pending >= MAX_PENDING_ENTRIES:
            segment.write_indexes()
        yield at
    if reader.size() < size:
        raise segment.is_shorter()
    return Scanned(next_offset, batches, position, size - position, reason, newest, newest_offset, since)
