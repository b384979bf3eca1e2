"""The walk: every record of a batch is looked at, nothing is copied or kept.

`walk` is the only code that runs per record on the produce path, so it exists twice: `walk_python` and its compiled
twin (`_walk.c`, taken at import when it was built; PYKBROKER_PURE=1 forces Python). The same tests run on both.

Responsible for structure (lengths, counts, headers) and for the facts that a verdict needs: extreme timestamps, keyless
records, offsets that are not consecutive. The verdicts themselves are `pykbroker_log.validate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from pykbroker_wire.records.record import InvalidRecord, read_varint, read_varlong

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1

Walked: TypeAlias = tuple[int, int, int, int, int, bool]
"""position after the last record, records seen, least and greatest timestamp delta (MAX_INT64 and MIN_INT64 without
records), records without key, whether offset deltas went up by one from the first expected one"""


def walk_python(data: Buffer, position: int, expected: int, count: int) -> Walked:
    """Walk at most `count` records from `position`, the first of them at offset delta `expected`.

    Raises InvalidRecord for a record that is there but wrong. A record that is not all there ends the walk in front of
    it: the caller knows whether more data follows. Indexing bytes is faster than indexing a view, so give it bytes.
    """
    # Offset deltas are compared as they are encoded: zigzag, so that the n-th is 2n. The straight line is for numbers
    # of one and two bytes, which nearly all are: it costs about 50 ns for each, a call of read_varint 300 ns.
    end = len(data)
    low = MAX_INT64
    high = MIN_INT64
    keyless = 0
    dense = True
    wanted = expected << 1
    last = expected + count << 1
    start = position
    stop = 0
    try:
        while wanted < last:
            start = position
            stop = 0  # an IndexError before it is set means: the data ends in the record's length
            byte = data[position]
            position += 1
            if byte > 127:
                second = data[position]
                if second < 128:
                    position += 1
                    byte = byte & 127 | second << 7
                else:
                    size, position = read_varint(data, position - 1)
                    byte = size << 1 if size >= 0 else 1
            if byte & 1:
                raise InvalidRecord("a record of negative size")
            stop = position + (byte >> 1)
            if stop > end:
                position = start
                break
            byte = data[position + 1]  # not the attributes, which have no meaning yet, but the timestamp
            position += 2
            if byte > 127:
                second = data[position]
                if second < 128:
                    position += 1
                    byte = byte & 127 | second << 7
                    byte = byte >> 1 ^ -(byte & 1)
                else:
                    byte, position = read_varlong(data, position - 1)
            elif byte:
                byte = byte >> 1 ^ -(byte & 1)
            if byte > high:
                high = byte
            if byte < low:
                low = byte
            byte = data[position]  # offset
            position += 1
            if byte > 127:
                second = data[position]
                if second < 128:
                    position += 1
                    byte = byte & 127 | second << 7
                else:
                    size, position = read_varint(data, position - 1)
                    byte = size << 1 if size >= 0 else -1
            if byte != wanted:
                dense = False
            byte = data[position]  # key
            position += 1
            if byte > 127:
                size, position = read_varint(data, position - 1)
                if size < 0:
                    keyless += 1
                else:
                    position += size
            elif byte & 1:
                keyless += 1
            else:
                position += byte >> 1
            byte = data[position]  # value
            position += 1
            if byte > 127:
                second = data[position]
                if second < 128:
                    position += 1
                    if not byte & 1:
                        position += (byte & 127 | second << 7) >> 1
                else:
                    size, position = read_varint(data, position - 1)
                    if size > 0:
                        position += size
            elif not byte & 1:
                position += byte >> 1
            if data[position]:
                position = _walk_headers(data, position, stop)
            else:
                position += 1
            if position != stop:
                raise InvalidRecord(f"record {wanted >> 1} says that it ends at {stop}, its fields end at {position}")
            wanted += 2
    except IndexError:
        if stop:
            raise InvalidRecord(f"a length in record {wanted >> 1} leads out of the batch") from None
        position = start
    return position, (wanted >> 1) - expected, low, high, keyless, dense


def _walk_headers(data: Buffer, position: int, stop: int) -> int:
    count, position = read_varint(data, position)
    if count < 0 or count > stop - position:
        raise InvalidRecord(f"{count} record headers")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise InvalidRecord("a record header without a key")
        size, position = read_varint(data, position + size)
        if size > 0:
            position += size
    return position


walk: Callable[[Buffer, int, int, int], Walked] = walk_python
COMPILED = False
if os.environ.get("PYKBROKER_PURE") != "1":
    try:
        from pykbroker_wire.records._walk import walk as walk
    except ImportError:  # not built here, or built against another C library
        pass
    else:
        COMPILED = True


# --- over chunks ------------------------------------------------------------------------------------------------------


def walk_stream(chunks: Iterable[bytes], count: int) -> Walked:
    """Walk `count` records that fill all chunks together exactly; `position` in the result means nothing.

    Only one chunk is in memory at a time: a record that goes over its end is read byte by byte and its key and value
    are skipped, however long they are.
    """
    source = _Source(iter(chunks))
    result = walk(source.data, 0, 0, count)
    source.position = result[0]
    while result[1] < count:
        more = source.straddling(result[1])
        result = _merge(result, more)
        more = walk(source.data, source.position, result[1], count - result[1])
        source.position = more[0]
        result = _merge(result, more)
    source.require_end()
    return result


def walk_each(chunks: Iterable[bytes], count: int) -> Iterator[Walked]:
    """The same, but each record is reported by itself."""
    source = _Source(iter(chunks))
    for index in range(count):
        walked = walk(source.data, source.position, index, 1)
        source.position = walked[0]
        yield walked if walked[1] else source.straddling(index)
    source.require_end()


def _merge(first: Walked, second: Walked) -> Walked:
    return (
        second[0],
        first[1] + second[1],
        min(first[2], second[2]),
        max(first[3], second[3]),
        first[4] + second[4],
        first[5] and second[5],
    )


class _Source:
    """Chunks as one run of bytes, to be read and skipped but not looked back at."""

    __slots__ = ("_chunks", "_dropped", "data", "position")

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._dropped = 0
        self.data = next(chunks, b"")
        self.position = 0

    def next_chunk(self) -> bool:
        """Whether there is another chunk; it may raise what the decompressor raises."""
        self._dropped += len(self.data)
        self.position = 0
        self.data = next(self._chunks, b"")
        return bool(self.data)

    def require_end(self) -> None:
        if self.position < len(self.data) or self.next_chunk():
            raise InvalidRecord("more data than records in the batch")

    def straddling(self, expected: int) -> Walked:
        """One record, wherever it lies."""
        size = self._varint(28)
        stop = self._here() + size
        self._skip(1)
        timestamp_delta = self._varint(63)
        offset_delta = self._varint(28)
        key_size = self._varint(28)
        self._skip(key_size)
        self._skip(self._varint(28))
        headers = self._varint(28)
        if size < 0 or headers < 0 or headers > stop - self._here():
            raise InvalidRecord(f"a record of size {size} with {headers} headers")
        for _ in range(headers):
            size = self._varint(28)
            if size < 0:
                raise InvalidRecord("a record header without a key")
            self._skip(size)
            self._skip(self._varint(28))
        if self._here() != stop:
            raise InvalidRecord(f"record {expected} says that it ends at {stop}, its fields end at {self._here()}")
        return self.position, 1, timestamp_delta, timestamp_delta, int(key_size < 0), offset_delta == expected

    def _here(self) -> int:
        return self._dropped + self.position

    def _varint(self, most_bits: int) -> int:
        zigzag = shift = 0
        while True:
            while self.position >= len(self.data):
                if not self.next_chunk():
                    raise InvalidRecord("the batch ends inside a record")
            byte = self.data[self.position]
            self.position += 1
            zigzag |= (byte & 127) << shift
            if byte < 128:
                zigzag &= 0xFFFFFFFF if most_bits == 28 else 0xFFFFFFFFFFFFFFFF
                return zigzag >> 1 ^ -(zigzag & 1)
            shift += 7
            if shift > most_bits:
                raise InvalidRecord("a number of too many bytes")

    def _skip(self, size: int) -> None:
        while size > 0:
            left = len(self.data) - self.position
            if size <= left:
                self.position += size
                return
            size -= left
            if not self.next_chunk():
                raise InvalidRecord("the batch ends inside a record")
