"""Reads the batches of a file one after the other, also batches whose headers are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykbroker_log.disk import FileReader
from pykbroker_wire.records.batch import HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, BatchHeader

_CHUNK_BYTES = 1 << 20


class Found(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


class NotABatch(ValueError):
    """The bytes at `position` cannot be a batch; nothing after them can be read."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at position {position}")
        self.position = position
        self.why = why


def batches(file: FileReader, position: int = 0, end: int | None = None) -> Iterator[Found]:
    """Yield every batch from `position` on. The iteration ends without an error at a batch that extends beyond the end,
    as in Apache Kafka. The caller checks the CRC. Raises NotABatch."""
    size = file.size() if end is None else min(end, file.size())
    chunk, start = memoryview(b""), position
    while size - position >= HEADER_SIZE:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.pread(min(_CHUNK_BYTES, size - position), position)), position, 0
        if len(chunk) - at < HEADER_SIZE:
            return
        header = BatchHeader.parse(chunk, at)
        if header.magic != MAGIC:
            raise NotABatch(position, f"magic {header.magic}")
        if header.batch_length < MIN_BATCH_LENGTH:
            raise NotABatch(position, f"a batch of {header.size_in_bytes} bytes")
        length = header.size_in_bytes
        if position + length > size:
            return
        if at + length > len(chunk):
            chunk, start, at = memoryview(file.pread(max(length, _CHUNK_BYTES), position)), position, 0
        yield Found(position, header, chunk[at : at + length])
        position += length
