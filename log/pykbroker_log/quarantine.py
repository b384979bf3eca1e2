"""Finds whole batches after the damage in a log, and copies the bytes that are cut off with them to another file.

Apache Kafka cuts a log off at the first bytes that are no batch. After a torn write nothing is worth keeping. After a
damaged sector there may be gigabytes of good records, and their owner wants to find them.

Responsible for distinguishing the two cases, and for files that neither pykbroker nor Apache Kafka takes for a segment:
`<base offset>.log.<position>.corrupt-<ms>` begins at that position of that segment. Not responsible for the cut
(log_loading.py). Generators yield the bytes that they have looked at, so that their caller may pause.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct

from pykbroker_log import names
from pykbroker_log.disk import Disk, File, parent_of
from pykbroker_wire.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_LENGTH,
    BatchHeader,
    verify_crc,
)

_CHUNK_BYTES = 1 << 20
_MAGIC_BYTE = bytes([MAGIC])
# Fields of a batch header: base offset, length, attributes, last offset delta.
_FRONT = Struct(">qi9xhi")
_MEANINGLESS_ATTRIBUTES = ~0x7F


def quarantine_name(base_offset: int, position: int, now_ms: int) -> str:
    return f"{names.segment_file(base_offset, names.LOG)}.{position}.corrupt-{now_ms}"


def find_batch(file: File, start: int, end: int, offsets: range) -> Generator[int, None, int]:
    """Find the first whole batch between two positions that begins at one of `offsets`. Return its position, or -1 if
    there is none."""
    if _is_batch(file, start, end, offsets):
        return start
    # If the header of the damaged batch is good, its length leads to the next batch.
    header = file.pread(HEADER_SIZE, start)
    if len(header) == HEADER_SIZE:
        after = start + BatchHeader.parse(header).size_in_bytes
        if start < after < end and _is_batch(file, after, end, offsets):
            return after
    position = start
    while position + HEADER_SIZE <= end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        if len(chunk) < HEADER_SIZE:
            break
        found = chunk.find(_MAGIC_BYTE, MAGIC_AT)
        while 0 <= found <= len(chunk) - HEADER_SIZE + MAGIC_AT:
            at = found - MAGIC_AT
            base_offset, length, attributes, last_delta = _FRONT.unpack_from(chunk, at)
            if (
                base_offset in offsets
                and length >= MIN_BATCH_LENGTH
                and last_delta >= 0
                and not attributes & _MEANINGLESS_ATTRIBUTES
                and _is_batch(file, position + at, end, offsets)
            ):
                return position + at
            found = chunk.find(_MAGIC_BYTE, found + 1)
        # A header that the chunk cuts off is in the next chunk again.
        looked_at = len(chunk) - HEADER_SIZE + 1
        position += looked_at
        yield looked_at
    return -1


def _is_batch(file: File, position: int, end: int, offsets: range) -> bool:
    data = file.pread(HEADER_SIZE, position)
    if len(data) < HEADER_SIZE:
        return False
    header = BatchHeader.parse(data)
    if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH or header.base_offset not in offsets:
        return False
    if position + LOG_OVERHEAD + header.batch_length > end:
        return False
    return verify_crc(file.pread(header.size_in_bytes, position), 0, header)


def keep_aside(disk: Disk, file: File, start: int, end: int, target: str) -> Generator[int, None, None]:
    """Copy the bytes between two positions to `target`; durable when the generator is finished."""
    copy = disk.open(target, create=True)
    try:
        copy.truncate(0)
        position = start
        while position < end:
            chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
            if not chunk:
                break
            copy.pwritev([chunk], position - start)
            position += len(chunk)
            yield len(chunk)
        copy.fsync()
    finally:
        copy.close()
    disk.fsync_dir(parent_of(target))
