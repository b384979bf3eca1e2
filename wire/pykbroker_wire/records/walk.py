"""The walk over the records of a batch: every record is examined, and nothing is copied or kept.

For a produce request or an offset lookup only these loops run once per record, so each exists twice for speed.
`walk_python` and the others have compiled twins (`_walk.c`, used if it was built; PYKBROKER_PURE=1 forces Python). The
same tests run on both.

Responsible for structure (lengths, counts, headers) and for what validation needs: extreme timestamps, records without
a key, offsets that are not consecutive. `pykbroker_log.validate` raises the errors.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pykbroker_wire.records.record import InvalidRecord, iter_encoded, read_varint, read_varlong, wrap_int64

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
_TOO_LARGE: Final = "a record of more bytes than the topic accepts"

Walked: TypeAlias = tuple[int, int, int, int, int, bool]
"""The position after the last record, the number of records, the least and the greatest timestamp delta (MAX_INT64 and
MIN_INT64 if there are none). Then the number of records without a key, and True if the offset deltas rise by one from
the first expected one."""


def walk_python(data: Buffer, position: int, expected: int, count: int, most: int = MAX_INT64) -> Walked:
    """Walk at most `count` records from `position`, the first of them at offset delta `expected`.

    Raises InvalidRecord for a complete record that is wrong, and for one of more bytes than `most`. An incomplete
    record ends the walk before it: the caller knows whether more data follows. Pass bytes, because indexing bytes is
    faster than indexing a view.
    """
    # Offset deltas are compared in their encoded form: zigzag, so the n-th is 2n. The inline code is for numbers of one
    # and two bytes, as nearly all are: it costs about 50 ns for each, a call of read_varint 300 ns.
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
            stop = 0  # an IndexError before it is set means that the data ends in the record's length
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
            byte >>= 1
            if byte > most:
                raise InvalidRecord(_TOO_LARGE)
            stop = position + byte
            if stop > end:
                position = start
                break
            byte = data[position + 1]  # skips the attributes, which have no meaning yet, and reads the timestamp
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


# --- one record in several chunks ------------------------------------------------------------------------------------

(_SIZE, _ATTRIBUTES, _TIMESTAMP, _OFFSET, _KEY, _VALUE, _HEADERS, _NAME, _CONTENT, _LAST, _DONE) = range(11)
#: The numbers of a state: stage, bytes to skip, shift, zigzag, bytes left, headers left, then the next three.
_STATE_SIZE: Final = 9
_TIMESTAMP_DELTA, _OFFSET_DELTA, _KEY_SIZE = 6, 7, 8


def walk_across_python(state: array[int], data: Buffer, position: int, most: int = MAX_INT64) -> int:
    """Continue with one record at `position`; return where the chunk or the record ends. `state[0]` is _DONE if the
    record has ended. Raises InvalidRecord, also for a record of more bytes than `most`. Then the state is unchanged."""
    end = len(data)
    stage, skip, shift, zigzag, left, headers, *facts = state
    zigzag &= 0xFFFFFFFFFFFFFFFF
    while stage != _DONE:
        if skip > 0:
            step = min(skip, end - position)
            position += step
            skip -= step
            if skip > 0:
                break
        if stage == _LAST:
            if left:
                raise InvalidRecord("a record does not end where it says")
            stage = _DONE
            break
        if position >= end:
            break
        byte = data[position]
        position += 1
        if stage != _SIZE:
            left -= 1
            if left < 0:
                raise InvalidRecord("a length in a record leads out of it")
        if stage == _ATTRIBUTES:
            stage = _TIMESTAMP
            continue
        zigzag |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift >= (64 if stage == _TIMESTAMP else 32):
                raise InvalidRecord("a number of too many bytes")
            continue
        zigzag &= 0xFFFFFFFFFFFFFFFF if stage == _TIMESTAMP else 0xFFFFFFFF
        value = zigzag >> 1 ^ -(zigzag & 1)
        zigzag = shift = 0
        if stage == _SIZE:
            if value < 0:
                raise InvalidRecord("a record of a negative size")
            if value > most:
                raise InvalidRecord(_TOO_LARGE)
            left = value
        elif stage <= _KEY:
            facts[stage - _TIMESTAMP] = value
        elif stage == _HEADERS:
            if value < 0 or value > left:
                raise InvalidRecord(f"{value} record headers")
            headers = value
        elif stage == _NAME and value < 0:
            raise InvalidRecord("a record header without a key")
        elif stage == _CONTENT:
            headers -= 1
        if stage in _SKIPPED and value > 0:
            if value > left:
                raise InvalidRecord("a length in a record leads out of it")
            skip = value
            left -= value
        if stage in (_HEADERS, _CONTENT):
            stage = _NAME if headers else _LAST
        else:
            stage += 1
    state[:] = array("q", (stage, skip, shift, wrap_int64(zigzag), left, headers, *facts))
    return position


_SKIPPED: Final = frozenset((_KEY, _VALUE, _NAME, _CONTENT))

# --- refused records, and the search for a timestamp -----------------------------------------------------------------

Examined: TypeAlias = tuple[int, int, int, int, int]
"""The position after the last record, the number of records, their greatest timestamp (MIN_INT64 if there are none),
the timestamp of the last record, and its error: 0, KEYLESS or UNTIMELY."""

KEYLESS: Final = 1
UNTIMELY: Final = 2


def examine_python(
    data: Buffer,
    position: int,
    count: int,
    base_timestamp: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    keyed: bool,
    timed: bool,
) -> Examined:
    """Walk over `count` records, or up to and including the first record that breaks a rule. Timestamps wrap around as
    in Java. `keyed`: each record must have a key. `timed`: each timestamp must be within `before_max_ms` before and
    `after_max_ms` after `now_ms`. Raises InvalidRecord; an incomplete record ends the walk before it."""
    rules = RecordRules(base_timestamp, now_ms, before_max_ms, after_max_ms, keyed, timed)
    greatest = timestamp = MIN_INT64
    wrong = seen = 0
    while not wrong and seen < count:
        walked = walk_python(data, position, 0, 1)
        if not walked[1]:
            break
        position = walked[0]
        seen += 1
        timestamp = wrap_int64(base_timestamp + walked[2])
        greatest = max(greatest, timestamp)
        wrong = rules.broken(timestamp, is_keyless=bool(walked[4]))
    return position, seen, greatest, timestamp, wrong


class RecordRules(NamedTuple):
    """The arguments of `examine`."""

    base_timestamp: int
    now_ms: int
    before_max_ms: int
    after_max_ms: int
    keyed: bool
    timed: bool

    def broken(self, timestamp: int, *, is_keyless: bool) -> int:
        """Return 0, KEYLESS or UNTIMELY."""
        if self.keyed and is_keyless:
            return KEYLESS
        if self.timed and timestamp != -1:
            age = wrap_int64(self.now_ms - timestamp)
            if age > self.before_max_ms or wrap_int64(-age) > self.after_max_ms:
                return UNTIMELY
        return 0


def find_timestamp_python(
    data: Buffer, count: int, base_timestamp: int, target: int, first_delta: int
) -> tuple[int, int] | None:
    """Return offset delta and timestamp of the first of `count` records whose timestamp is at least `target` and whose
    offset delta is at least `first_delta`, or None. Raises InvalidRecord."""
    for record in iter_encoded(data, count, 0, base_timestamp):
        if record.timestamp >= target and record.offset >= first_delta:
            return record.offset, record.timestamp
    return None


walk: Callable[..., Walked] = walk_python
walk_across: Callable[..., int] = walk_across_python
examine: Callable[[Buffer, int, int, int, int, int, int, bool, bool], Examined] = examine_python
find_timestamp: Callable[[Buffer, int, int, int, int], tuple[int, int] | None] = find_timestamp_python
COMPILED = False
if os.environ.get("PYKBROKER_PURE") != "1":
    try:
        from pykbroker_wire.records._walk import examine as examine
        from pykbroker_wire.records._walk import find_timestamp as find_timestamp
        from pykbroker_wire.records._walk import walk as walk
        from pykbroker_wire.records._walk import walk_across as walk_across
    except ImportError:  # not built here, or built against another C library
        pass
    else:
        COMPILED = True


# --- over chunks ------------------------------------------------------------------------------------------------------


def walk_stream(chunks: Iterable[bytes], count: int, most: int = MAX_INT64) -> Walked:
    """Walk over `count` records that fill all chunks together exactly; `position` in the result means nothing.

    Only one chunk is in memory at a time. A record that crosses its end is read in pieces, and its key and value are
    skipped, however long they are. Raises InvalidRecord, also for a record of more bytes than `most`, and then reads no
    more chunks.
    """
    source = _Source(iter(chunks))
    result = walk(source.data, 0, 0, count, most)
    source.position = result[0]
    while result[1] < count:
        more = source.straddling(result[1], most)
        result = _merge(result, more)
        more = walk(source.data, source.position, result[1], count - result[1], most)
        source.position = more[0]
        result = _merge(result, more)
    source.require_end()
    return result


def examine_stream(
    chunks: Iterable[bytes], count: int, rules: RecordRules, most: int
) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the greatest timestamp of `count` records that fill all chunks together exactly (MIN_INT64 without
    records), and (index, KEYLESS or UNTIMELY, timestamp) of each record that breaks a rule. The walk ends at the
    `most`-th of these."""
    source = _Source(iter(chunks))
    greatest = MIN_INT64
    broken: list[tuple[int, int, int]] = []
    seen = 0
    while seen < count:
        source.position, more, high, timestamp, wrong = examine(source.data, source.position, count - seen, *rules)
        seen += more
        greatest = max(greatest, high)
        if seen < count and not wrong:
            walked = source.straddling(seen)
            seen += 1
            timestamp = wrap_int64(rules.base_timestamp + walked[2])
            greatest = max(greatest, timestamp)
            wrong = rules.broken(timestamp, is_keyless=bool(walked[4]))
        if wrong:
            broken.append((seen - 1, wrong, timestamp))
            if len(broken) == most:
                return greatest, broken
    source.require_end()
    return greatest, broken


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
    """Chunks as one sequence of bytes that is read forward only."""

    __slots__ = ("_chunks", "data", "position")

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.data = next(chunks, b"")
        self.position = 0

    def next_chunk(self) -> bool:
        """Go to the next chunk; return False if there is none. Raises the decompressor's errors."""
        self.position = 0
        self.data = next(self._chunks, b"")
        return bool(self.data)

    def require_end(self) -> None:
        if self.position < len(self.data) or self.next_chunk():
            raise InvalidRecord("more data than records in the batch")

    def straddling(self, expected: int, most: int = MAX_INT64) -> Walked:
        """Walk over one record that may lie in several chunks."""
        state = array("q", bytes(8 * _STATE_SIZE))
        while True:
            self.position = walk_across(state, self.data, self.position, most)
            if state[0] == _DONE:
                break
            if not self.next_chunk():
                raise InvalidRecord("the batch ends inside a record")
        timestamp_delta = state[_TIMESTAMP_DELTA]
        is_dense = state[_OFFSET_DELTA] == expected
        return self.position, 1, timestamp_delta, timestamp_delta, int(state[_KEY_SIZE] < 0), is_dense
