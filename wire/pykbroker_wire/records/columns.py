"""Record batches as columns: the records of a segment's bytes, appended to growing buffers in Arrow's layout.

`Columns` decides for each batch whether it counts (offsets, control batches, aborted transactions) and whether its
bytes are whole (length, format, CRC-32C), and decompresses it. The loop over the records of one batch exists twice, as
in `walk`: `fill_records_python`, and compiled (`_columns.c`, used if it was built; PYKBROKER_PURE=1 forces Python). The
same tests run on both.

Not responsible for files (callers pass bytes), for where a range begins (indexes), nor for pyarrow: `Filled.buffers`
are the buffers for `pyarrow.Array.from_buffers`.

    columns = Columns(WantedColumns.VALUE | WantedColumns.OFFSET, first_offset, last_offset, aborted)
    position = 0
    while not columns.done:
        before, position = position, columns.fill(data, position)
        if columns.full:
            yield columns.take()
        elif not columns.done and position == before: read more, at least `size_of(data, position)` bytes from there
    if columns.rows:
        yield columns.take()

Invariants: no byte outside of the data is read, and no column has more than 2^31 - 1 bytes of data between two `take`s.
A batch is taken whole or not at all, so `rows` may exceed `max_rows` by the records of one batch. After an error the
builder cannot be used again.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from enum import Flag, auto
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from pykbroker_wire.records.batch import HEADER
from pykbroker_wire.records.compression import DEFAULT_LIMIT, CompressionError, TooLarge, decompress
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.layout import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_LENGTH,
    TRANSACTIONAL,
    UP_TO_MAGIC,
)
from pykbroker_wire.records.record import InvalidRecord, iter_encoded

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

MAX_ROWS = 20_000
#: This fits into a processor's cache: with 16 MB of values of 1 KB, the work up to Spark's socket costs a third more.
MAX_BYTES = 4 * 1024 * 1024
_MOST_SPARES = 3
_MOST = (1 << 31) - 1
_SMALLEST_OLD_MESSAGE = 14
_INT32 = Struct("=i")
_INT64 = Struct("=q")
_LENGTH = Struct(">i")
_MOST_MS = ((1 << 63) - 1) // 1000


class WantedColumns(Flag):
    """The columns that are filled; the others cost nothing."""

    KEY = auto()
    VALUE = auto()
    OFFSET = auto()
    TIMESTAMP = auto()
    TIMESTAMP_TYPE = auto()
    HEADERS = auto()


ColumnBuffers: TypeAlias = tuple[bytearray | None, ...]
"""Sixteen buffers, None for a column that is not wanted; integers in the machine's byte order, bits from the lowest.

     0 key: validity bits, 1 offsets int32, 2 data          9 headers: validity bits, 10 offsets int32
     3 value: validity bits, 4 offsets int32, 5 data        11 name of a header: offsets int32, 12 data (UTF-8)
     6 offset int64                                         13 its value: validity bits, 14 offsets int32, 15 data
     7 timestamp int64, microseconds
     8 timestamp type int32: 0 create time, 1 log append time
"""
BUFFERS = 16
_Filling: TypeAlias = tuple[bytearray, ...]
_DATA = (2, 5, 12, 15)
_OFFSETS = (1, 4, 10, 11, 14)
_OF = {
    WantedColumns.KEY: (0, 1, 2),
    WantedColumns.VALUE: (3, 4, 5),
    WantedColumns.OFFSET: (6,),
    WantedColumns.TIMESTAMP: (7,),
    WantedColumns.TIMESTAMP_TYPE: (8,),
    WantedColumns.HEADERS: (9, 10, 11, 12, 13, 14, 15),
}


class BrokenBatch(ValueError):
    """Bytes of a segment that are no batch of this format, or differ from what was written.

    `position` is the batch's first byte in the file, `base_offset` the offset in its header, `problem` the message
    without these two.
    """

    def __init__(self, problem: str, position: int, base_offset: int) -> None:
        super().__init__(f"the batch at byte {position} with base offset {base_offset}: {problem}")
        self.problem = problem
        self.position = position
        self.base_offset = base_offset


class AbortedSpans:
    """Aborted transactions as (producer id, first offset, offset of the marker), as a `.txnindex` has them.

    If the index was lost, an aborted transaction has no span here. So transactions that counted as committed are
    compared with the markers: `read` notes records, and `end` checks the marker that follows them.
    """

    __slots__ = ("_spans", "undecided")

    def __init__(self, spans: Iterable[tuple[int, int, int]] = ()) -> None:
        self.undecided: dict[int, int] = {}
        """Producer ids of records that count as committed and whose marker has not come yet, with the first such
        offset."""
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in sorted(spans):
            self._spans.setdefault(producer_id, []).append((first_offset, last_offset))

    def covers(self, producer_id: int, base_offset: int) -> bool:
        """Return True if a transactional batch of the producer at this offset belongs to an aborted transaction."""
        spans = self._spans.get(producer_id)
        if spans is None:
            return False
        index = bisect_right(spans, (base_offset, _MOST << 32)) - 1
        return index >= 0 and spans[index][1] >= base_offset

    def read(self, producer_id: int, base_offset: int) -> None:
        """Record a transactional batch whose records counted as committed."""
        self.undecided.setdefault(producer_id, base_offset)

    def end(self, producer_id: int, records: Buffer, base_offset: int) -> str | None:
        """Note a control batch of a producer; `records` are the bytes after its header. Return an error text, or None.

        Raises InvalidRecord if the bytes are not one record.
        """
        first_offset = self.undecided.pop(producer_id, None)
        if first_offset is None:
            return None
        [record] = iter_encoded(records, 1, base_offset, 0, None)
        if parse_control(record).type is not ControlType.ABORT:
            return None
        return (
            f"it aborts the transaction of producer {producer_id} with the records from offset {first_offset} on, and "
            "the index of aborted transactions (.txnindex) does not have it"
        )


class Filled(NamedTuple):
    """The rows that `Columns.take` returns."""

    rows: int
    wanted: WantedColumns
    buffers: tuple[memoryview | None, ...]
    """The used part of each of the ColumnBuffers. The memory is used again when no view of it is left."""


# --- the loop over records --------------------------------------------------------------------------------------------


def fill_records_python(
    data: Buffer,
    count: int,
    base_offset: int,
    timestamp: int,
    append_time: bool,
    first_offset: int,
    last_offset: int,
    rows: int,
    buffers: ColumnBuffers,
    used: array[int],
) -> int:
    """Append the records with offsets in [first, last] to the buffers, which have `rows`; return the new number of
    rows. A buffer may be longer than the part of it that is `used`.

    `timestamp` is in milliseconds: the base for the records' deltas, or with `append_time` the timestamp of all
    records. Raises InvalidRecord if the data is not `count` records.
    """
    keys, values, headers = buffers[0:3], buffers[3:6], buffers[9:16]
    offset_column, timestamp_column, type_column = buffers[6:9]
    kind = _INT32.pack(append_time)
    for index, buffer in enumerate(buffers):
        if buffer is not None:
            del buffer[used[index] :]
    for record in iter_encoded(data, count, base_offset, timestamp, timestamp if append_time else None):
        if not first_offset <= record.offset <= last_offset:
            continue
        if keys[2] is not None:
            _put(keys, rows, record.key)
        if values[2] is not None:
            _put(values, rows, record.value)
        if offset_column is not None:
            offset_column += _INT64.pack(record.offset)
        if timestamp_column is not None:
            if abs(record.timestamp) > _MOST_MS:
                raise InvalidRecord(f"the timestamp {record.timestamp} ms, which microseconds cannot hold")
            timestamp_column += _INT64.pack(record.timestamp * 1000)
        if type_column is not None:
            type_column += kind
        if headers[0] is not None:
            _put_headers(headers, rows, record.headers)
        rows += 1
    for index, buffer in enumerate(buffers):
        used[index] = 0 if buffer is None else len(buffer)
    return rows


def _put(column: ColumnBuffers, row: int, content: Buffer | None) -> None:
    validity, offsets, data = cast("_Filling", column)
    _put_bit(validity, row, content is not None)
    if content is not None:
        data += content
    offsets += _end(data)


def _put_headers(column: ColumnBuffers, row: int, pairs: list[tuple[str, bytes | None]]) -> None:
    validity, offsets, name_offsets, names, *contents = cast("_Filling", column)
    _put_bit(validity, row, bool(pairs))
    for name, content in pairs:
        _put(tuple(contents), len(name_offsets) // 4 - 1, content)
        names += name.encode()
        name_offsets += _end(names)
    offsets += _INT32.pack(len(name_offsets) // 4 - 1)


def _put_bit(bits: bytearray, index: int, on: bool) -> None:
    if index & 7:
        bits[-1] |= on << (index & 7)
    else:
        bits.append(on)


def _end(data: bytearray) -> bytes:
    if len(data) > _MOST:
        raise InvalidRecord("more than 2 GiB in one column")
    return _INT32.pack(len(data))


fill_records: Callable[[Buffer, int, int, int, bool, int, int, int, ColumnBuffers, array[int]], int] = (
    fill_records_python
)
COMPILED = False
if os.environ.get("PYKBROKER_PURE") != "1":
    try:
        from pykbroker_wire.records._walk import fill_columns as fill_records
    except ImportError:  # not built here, or built against another C library
        pass
    else:
        COMPILED = True


# --- batches ----------------------------------------------------------------------------------------------------------


def size_of(data: Buffer, position: int = 0, file_position: int = 0) -> int:
    """Return the size of the batch at `position`, or HEADER_SIZE while too few bytes are there to know it.

    Raises BrokenBatch for a length that no batch has, and for any format but v2.
    """
    if len(data) - position < UP_TO_MAGIC:
        return HEADER_SIZE
    [length] = _LENGTH.unpack_from(data, position + LENGTH_AT)
    magic = data[position + MAGIC_AT]
    if length >= MIN_BATCH_LENGTH and magic == MAGIC:
        return int(length) + LOG_OVERHEAD
    base_offset = int.from_bytes(data[position : position + LENGTH_AT], "big", signed=True)
    if length < _SMALLEST_OLD_MESSAGE or magic == MAGIC:
        problem = f"its length field says {length}, which no batch has"
    elif magic < MAGIC:
        problem = (
            f"its format is {magic}, older than the format {MAGIC} that is read here, which brokers write "
            "since Apache Kafka 0.11"
        )
    else:
        problem = f"its format is {magic}, newer than the format {MAGIC} that is read here, or the bytes are damaged"
    raise BrokenBatch(problem, file_position + position, base_offset)


class Columns:
    """Fills columns with the records of one partition from `first_offset` to `last_offset`, both included.

    `aborted` are the transactions whose records a read-committed reader leaves out; with None they are read too. Marker
    batches are never rows. `limit` is the most that one batch may decompress to.
    """

    def __init__(
        self,
        wanted: WantedColumns,
        first_offset: int,
        last_offset: int,
        aborted: AbortedSpans | None = None,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self.wanted = wanted
        self.rows: int
        """Rows since the last `take`."""
        self.next_offset = first_offset
        """The offset after the last batch that was read, whether it gave rows or not. If the next batch begins later,
        compaction has left a gap."""
        self._first_offset = first_offset
        self._last_offset = last_offset
        self._aborted = aborted
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._limit = limit
        self._looked_to = -1
        self._spares: list[ColumnBuffers] = []
        self._buffers: ColumnBuffers
        self._used: array[int]
        self._bytes: int
        self._no_room: bool
        self._begin()

    @property
    def done(self) -> bool:
        """True if no record at or before `last_offset` can follow."""
        return self.next_offset > self._last_offset

    @property
    def full(self) -> bool:
        """True if `take` must be called before the next `fill`, which does nothing until then."""
        return self.rows >= self._max_rows or self._bytes >= self._max_bytes or self._no_room

    def take(self) -> Filled:
        """Return the rows so far, and begin again without rows."""
        filled = Filled(
            self.rows,
            self.wanted,
            tuple(
                None if buffer is None else memoryview(buffer)[:size]
                for buffer, size in zip(self._buffers, self._used, strict=True)
            ),
        )
        self._spares = [*self._spares[1 - _MOST_SPARES :], self._buffers]
        self._begin()
        return filled

    def fill(self, data: Buffer, position: int = 0, file_position: int = 0) -> int:
        """Take batches from `position` on, until `full` or `done` is True, or no whole batch is left. Return the
        position after them.

        `file_position` is the position of the data's first byte in the file, for messages. Raises BrokenBatch for a
        flipped bit, a length or a format that no batch has, offsets that go back, and bytes that are no records.
        """
        view = memoryview(data)
        end = len(view)
        while not self.done and not self.full and end - position >= HEADER_SIZE:
            after = position + size_of(view, position, file_position)
            header = HEADER.unpack_from(view, position)
            base_offset, last_offset = header[0], header[0] + header[6]
            if base_offset <= self._looked_to or header[6] < 0:
                problem = f"its offsets go to {last_offset}, those before it to {self._looked_to}"
                raise BrokenBatch(problem, file_position + position, base_offset)
            if base_offset > self._last_offset:
                self.next_offset = base_offset
                break
            if after > end:
                break
            if last_offset >= self._first_offset:
                if crc32c(view[position + CRC_START : after]) != header[4]:
                    problem = "its CRC is not that of its bytes: they are damaged"
                    raise BrokenBatch(problem, file_position + position, base_offset)
                payload = view[position + HEADER_SIZE : after]
                try:
                    if self._counts(header[5], header[9], base_offset):
                        self._fill_batch(payload, header)
                        if self._no_room:
                            break
                    wrong = self._compare(payload, header)
                except (InvalidRecord, CompressionError, TooLarge) as error:
                    raise BrokenBatch(str(error), file_position + position, base_offset) from error
                if wrong is not None:
                    raise BrokenBatch(wrong, file_position + position, base_offset)
                self.next_offset = last_offset + 1
            self._looked_to = last_offset
            position = after
        return position

    def _counts(self, attributes: int, producer_id: int, base_offset: int) -> bool:
        if not attributes & (CONTROL | TRANSACTIONAL):
            return True
        if attributes & CONTROL:
            return False
        return self._aborted is None or not self._aborted.covers(producer_id, base_offset)

    def _compare(self, payload: memoryview, header: tuple[int, ...]) -> str | None:
        """Return an error text if this batch contradicts the spans of aborted transactions, else None."""
        attributes, producer_id = header[5], header[9]
        if self._aborted is None or not attributes & TRANSACTIONAL:
            return None
        if attributes & CONTROL:
            return self._aborted.end(producer_id, payload, header[0])
        # Compaction keeps empty batches. They may be of aborted transactions whose spans are gone with their records.
        if header[12] and not self._aborted.covers(producer_id, header[0]):
            self._aborted.read(producer_id, header[0])
        return None

    def _fill_batch(self, payload: memoryview, header: tuple[int, ...]) -> None:
        base_offset, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count = header
        codec = attributes & CODEC_MASK
        records: Buffer = decompress(codec, payload, self._limit) if codec and len(payload) else payload
        if self.rows and self._bytes + len(records) > _MOST:
            self._no_room = True
            return
        append_time = bool(attributes & LOG_APPEND_TIME)
        self.rows = fill_records(
            records,
            count,
            base_offset,
            max_timestamp if append_time else base_timestamp,
            append_time,
            self._first_offset,
            self._last_offset,
            self.rows,
            self._buffers,
            self._used,
        )
        used = self._used
        self._bytes = used[2] + used[5] + used[12] + used[15]  # of the data; a loop costs as much as the rest of this

    def _begin(self) -> None:
        """Begin without rows. Memory that was filled before is used again if the caller no longer needs it: fresh
        memory costs a page fault for every 4 KB, more than writing to it."""
        self.rows = 0
        self._no_room = False
        self._bytes = 0
        free = next((index for index, spare in enumerate(self._spares) if _is_free(spare)), None)
        self._buffers = self._fresh() if free is None else self._spares.pop(free)
        sizes = (4 if index in _OFFSETS and self._buffers[index] is not None else 0 for index in range(BUFFERS))
        self._used = array("q", sizes)

    def _fresh(self) -> ColumnBuffers:
        wanted = {index for column, indexes in _OF.items() if column in self.wanted for index in indexes}
        return tuple(
            (bytearray(4) if index in _OFFSETS else bytearray()) if index in wanted else None
            for index in range(BUFFERS)
        )


def _is_free(buffers: ColumnBuffers) -> bool:
    """Return True if no view of the buffers is left: only then can a bytearray change its size."""
    try:
        for buffer in buffers:
            if buffer is not None:
                buffer.append(0)
                del buffer[-1]
    except BufferError:
        return False
    return True
