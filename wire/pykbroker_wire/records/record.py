"""One record in a batch, format v2: lazy reading, writing, and the variable-length integers for both.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    | key length varint, key | value length varint, value | header count varint | per header: key, value with lengths

All integers are zigzag varints; a negative length is null. Responsible only for structure: `pykbroker_log.validate`
decides whether a client may write such a record.

Invariants: keys and values are views, of the caller's buffer if the batch is not compressed; for any bytes the readers
here raise only `InvalidRecord`, `CompressionError` or `TooLarge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pykbroker_wire.records.compression import DEFAULT_LIMIT, decompress
from pykbroker_wire.records.layout import HEADER_SIZE, LOG_APPEND_TIME

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

Headers: TypeAlias = Iterable[tuple[str, bytes | None]]


class InvalidRecord(ValueError):
    """The bytes are not a record, or the number of records is not that in the batch's header."""


@dataclass(slots=True)
class Record:
    """A record. `key` and `value` are views: copy them if they must outlive the buffer that the batch was read from."""

    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[str, bytes | None]]


# --- variable-length integers -----------------------------------------------------------------------------------------


def _encode_varint(zigzag: int) -> bytes:
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_ONE_BYTE = tuple(_encode_varint(zigzag) for zigzag in range(128))


def varint(value: int) -> bytes:
    """Encode a signed integer of up to 64 bits, zigzag."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag < 128:
        return _ONE_BYTE[zigzag]
    if zigzag < 16384:  # bytes((a, b)) is three times as fast as the loop, and most lengths are in this range
        return bytes((zigzag & 127 | 128, zigzag >> 7))
    return _encode_varint(zigzag)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a 32-bit zigzag varint: (value, position after it). Raises IndexError at the end of the data.

    Five bytes at most. Bits beyond the 32nd are dropped, as in Java."""
    zigzag = shift = 0
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            zigzag &= 0xFFFFFFFF
            return zigzag >> 1 ^ -(zigzag & 1), position
        shift += 7
        if shift > 28:
            raise InvalidRecord("a varint of more than 5 bytes")


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Read a 64-bit zigzag varint in the same way; ten bytes at most."""
    zigzag = shift = 0
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 127) << shift
        if byte < 128:
            zigzag &= 0xFFFFFFFFFFFFFFFF
            return zigzag >> 1 ^ -(zigzag & 1), position
        shift += 7
        if shift > 63:
            raise InvalidRecord("a varlong of more than 10 bytes")


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_record(
    offset_delta: int, timestamp_delta: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
) -> bytes:
    """Return the encoded record, which begins with its length."""
    parts: list[Buffer] = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    if key is None:
        parts.append(b"\x01")
    else:
        parts.append(varint(len(key)))
        parts.append(key)
    if value is None:
        parts.append(b"\x01")
    else:
        parts.append(varint(len(value)))
        parts.append(value)
    if headers:
        pairs = list(headers)
        parts.append(varint(len(pairs)))
        for name, content in pairs:
            encoded = name.encode()
            parts.append(varint(len(encoded)))
            parts.append(encoded)
            if content is None:
                parts.append(b"\x01")
            else:
                parts.append(varint(len(content)))
                parts.append(content)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    return varint(len(body)) + body


# --- reading ----------------------------------------------------------------------------------------------------------


class RecordsHeader(Protocol):
    """The part of a batch's header (batch.py) that is needed to find its records."""

    @property
    def size_in_bytes(self) -> int: ...

    @property
    def attributes(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def record_count(self) -> int: ...

    @property
    def base_offset(self) -> int: ...

    @property
    def base_timestamp(self) -> int: ...


def iter_records(buf: Buffer, position: int, header: RecordsHeader, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Yield the records of the batch whose header was parsed at `position`, one by one.

    Nothing is read before the first `next`. Then a compressed batch is decompressed as a whole, at most to `limit`
    bytes, because the records are views of the result. Raises InvalidRecord, CompressionError, TooLarge.
    """
    payload = memoryview(buf)[position + HEADER_SIZE : position + header.size_in_bytes]
    if len(payload) != header.size_in_bytes - HEADER_SIZE:
        raise InvalidRecord("the buffer ends inside the batch")
    codec = header.attributes & 7
    data: Buffer = decompress(codec, payload, limit) if codec else payload
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    yield from iter_encoded(data, header.record_count, header.base_offset, header.base_timestamp, append_time)


def iter_encoded(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> Iterator[Record]:
    """Yield `count` records that fill `data` exactly. Raises InvalidRecord."""
    if count < 0:
        raise InvalidRecord(f"a batch of {count} records")
    view = memoryview(data)
    end = len(view)
    position = 0
    # Loading an internal topic reads all its records in this loop. One-byte numbers are read inline, and only longer
    # ones by a call, which costs six times as much.
    for index in range(count):
        try:
            size, position = read_varint(data, position)
            stop = position + size
            if size < 0 or stop > end:
                raise InvalidRecord(f"record {index} has {size} bytes, {end - position} are left in the batch")
            position += 1  # the attributes have no meaning yet
            byte = data[position]
            if byte < 128:
                timestamp_delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                timestamp_delta, position = read_varlong(data, position)
            byte = data[position]
            if byte < 128:
                offset_delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                offset_delta, position = read_varint(data, position)
            byte = data[position]
            if byte == 1:
                key = None
                position += 1
            elif byte < 128 and not byte & 1:
                start = position + 1
                position = start + (byte >> 1)
                key = view[start:position]
            else:
                key, position = _read_bytes(view, position)
            byte = data[position]
            if byte == 1:
                value = None
                position += 1
            elif byte < 128 and not byte & 1:
                start = position + 1
                position = start + (byte >> 1)
                value = view[start:position]
            else:
                value, position = _read_bytes(view, position)
            headers: list[tuple[str, bytes | None]] = []
            if data[position]:
                position = _read_headers(view, position, stop, headers)
            else:
                position += 1
        except IndexError:
            raise InvalidRecord(f"the batch ends inside record {index}") from None
        if position != stop:
            raise InvalidRecord(f"record {index} says that it ends at {stop}, its fields end at {position}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -0x8000000000000000 <= timestamp <= 0x7FFFFFFFFFFFFFFF:
            timestamp = wrap_int64(timestamp)
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != end:
        raise InvalidRecord(f"{end - position} bytes are left after the last record of the batch")


def _read_bytes(view: memoryview, position: int) -> tuple[memoryview | None, int]:
    # A length beyond the record gives a view that is too short, and a position that is not the record's end.
    size, position = read_varint(view, position)
    if size < 0:
        return None, position
    after = position + size
    return view[position:after], after


def _read_headers(view: memoryview, position: int, stop: int, headers: list[tuple[str, bytes | None]]) -> int:
    count, position = read_varint(view, position)
    if count < 0 or count > stop - position:
        raise InvalidRecord(f"a record with {count} headers")
    for _ in range(count):
        name, position = _read_bytes(view, position)
        if name is None:
            raise InvalidRecord("a record header without a key")
        content, position = _read_bytes(view, position)
        if position > stop:
            raise InvalidRecord("a record header that leads out of its record")
        headers.append((str(name, "utf-8", "replace"), None if content is None else bytes(content)))
    return position


def wrap_int64(value: int) -> int:
    """Return the value of a Java long after an addition that overflowed."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000
