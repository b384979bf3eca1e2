"""The loops that compaction runs once per record: put keys into a table, find the records of a batch that survive, and
move records to another base timestamp. Validation uses the last loop to renumber records.

Each exists twice, as in `walk`: here in Python, and compiled (`_dedupe.c`, used if it was built; PYKBROKER_PURE=1
forces Python). The same tests run on both. `pykbroker_log.compaction` decides about the table, its size, and what
happens to a batch.

A table is a flat buffer of slots of SLOT_SIZE bytes. A slot has 16 bytes of a hash of the key, and the offset + 1, so
that zeros are a free slot. No client knows the hash's seed, so none can make two keys collide, which would lose one of
them. Open addressing with linear probing. Only the process that made a table reads it: the two twins hash differently.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from pykbroker_wire.records.record import InvalidRecord, read_varint, read_varlong, varint, wrap_int64

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

SLOT_SIZE = 24
SEED_SIZE = 16

_OFFSET = struct.Struct("<q")
_FREE = bytes(8)

_Table: TypeAlias = bytearray | memoryview

Put: TypeAlias = tuple[int, int, int]
"""The number of new keys, the number of records seen, and the offset of the last record that counted, or the offset
before `start_offset` if none did. Fewer than all records are seen if the table has no room for the next key."""

NewestRecords: TypeAlias = tuple[list[tuple[int, int]], int, int, int, int, int]
"""The places of the survivors in the data, as (start, end) of neighbours; their number; the number of tombstones among
them. Then the number of records that go because they have no key, the timestamp delta of the first survivor, and the
greatest timestamp delta of all survivors."""


def put_keys_python(
    table: _Table,
    seed: bytes,
    room: int,
    data: Buffer,
    count: int,
    base_offset: int,
    start_offset: int,
) -> Put:
    """Put the keys of a batch's records at or after `start_offset` into the table with their offsets. The table takes
    `room` new keys. Raises InvalidRecord if the data are not `count` records."""
    added = index = position = 0
    reached = start_offset - 1
    while index < count:
        _, after_timestamp, key_start, key_end, _, position = _next(data, position, index)
        offset = base_offset + read_varint(data, after_timestamp)[0]
        if offset >= start_offset:
            if key_end >= 0:
                place, digest, after = _find(table, seed, data[key_start:key_end])
                if place < 0 or (after == 0 and added >= room):
                    return added, index, reached
                added += after == 0
                table[place : place + SLOT_SIZE] = digest + _OFFSET.pack(offset + 1)
            reached = offset
        index += 1
    _require_end(data, position, index)
    return added, index, reached


def survivors_python(
    table: _Table,
    seed: bytes,
    data: Buffer,
    count: int,
    base_offset: int,
    latest_offset: int,
    drop_tombstones: bool,
) -> NewestRecords:
    """Find the records of a batch that stay. All after `latest_offset` stay, because the table does not cover them. Up
    to that offset a record stays if it is the newest of its key, and is no tombstone to drop. Raises InvalidRecord."""
    runs: list[tuple[int, int]] = []
    kept = tombstones = keyless = position = 0
    first = high = 0
    run = -1
    for index in range(count):
        start = position
        timestamp_delta, after_timestamp, key_start, key_end, value_size, position = _next(data, position, index)
        offset = base_offset + read_varint(data, after_timestamp)[0]
        survives = True
        if offset <= latest_offset:
            if key_end < 0:
                keyless += 1
                survives = False
            else:
                _, _, after = _find(table, seed, data[key_start:key_end])
                survives = offset >= after - 1 and (value_size >= 0 or not drop_tombstones)
        if survives:
            if kept == 0:
                first = high = timestamp_delta
            high = max(high, timestamp_delta)
            kept += 1
            tombstones += value_size < 0
            if run < 0:
                run = start
        elif run >= 0:
            runs.append((run, start))
            run = -1
    _require_end(data, position, count)
    if run >= 0:
        runs.append((run, position))
    return runs, kept, tombstones, keyless, first, high


def rebase_python(data: Buffer, count: int, shift: int, renumber: bool) -> bytes:
    """Return the records with `shift` added to each timestamp delta and, with `renumber`, the offset deltas 0, 1, 2 and
    so on. All else stays unchanged. Raises InvalidRecord."""
    if not 0 <= count <= len(data):
        raise InvalidRecord(f"{count} records in {len(data)} bytes")
    parts: list[Buffer] = []
    position = 0
    for index in range(count):
        timestamp_delta, after_timestamp, _, _, _, position = _next(data, position, index)
        deltas, rest = varint(wrap_int64(timestamp_delta + shift)), after_timestamp
        if renumber:
            deltas += varint(index)
            _, rest = read_varint(data, after_timestamp)
        body = b"\x00" + deltas + bytes(data[rest:position])
        parts.append(varint(len(body)))
        parts.append(body)
    _require_end(data, position, count)
    return b"".join(parts)


def _next(data: Buffer, position: int, index: int) -> tuple[int, int, int, int, int, int]:
    """Parse the record at `position`. Return its timestamp delta, the start of the offset delta, start and end of the
    key, the size of the value, and the end of the record. The key's end or the value's size is -1 if there is none."""
    try:
        size, position = read_varint(data, position)
        stop = position + size
        if size < 0 or stop > len(data):
            raise InvalidRecord(f"record {index}: the batch ends inside it")
        timestamp_delta, after_timestamp = read_varlong(data, position + 1)
        _, position = read_varint(data, after_timestamp)
        key_size, key_start = read_varint(data, position)
        position = key_start + max(0, key_size)
        value_size, position = read_varint(data, position)
        position += max(0, value_size)
        headers, position = read_varint(data, position)
        if headers < 0 or headers > stop - position:
            raise InvalidRecord(f"record {index}: a record with a wrong number of headers")
        for _ in range(headers):
            name_size, position = read_varint(data, position)
            if name_size < 0:
                raise InvalidRecord(f"record {index}: a record header without a key")
            content_size, position = read_varint(data, position + name_size)
            position += max(0, content_size)
    except IndexError:
        raise InvalidRecord(f"record {index}: a length in a record leads out of it") from None
    if position != stop:
        raise InvalidRecord(f"record {index}: a record does not end where it says")
    key_end = key_start + key_size if key_size >= 0 else -1
    return timestamp_delta, after_timestamp, key_start, key_end, value_size, stop


def _require_end(data: Buffer, position: int, index: int) -> None:
    if position != len(data):
        raise InvalidRecord(f"record {index}: there is more behind it")


def _find(table: _Table, seed: bytes, key: Buffer) -> tuple[int, bytes, int]:
    """Return (place, hash, offset + 1) of the slot with the key, or of the free slot for it, then with 0. The place is
    -1 if the table is full of other keys."""
    digest = blake2b(key, digest_size=16, key=seed).digest()
    size = len(table)
    place = int.from_bytes(digest[:8], "little") % (size // SLOT_SIZE) * SLOT_SIZE
    for _ in range(size // SLOT_SIZE):
        after = bytes(table[place + 16 : place + SLOT_SIZE])
        if after == _FREE:
            return place, digest, 0
        if bytes(table[place : place + 16]) == digest:
            return place, digest, _OFFSET.unpack(after)[0]
        place += SLOT_SIZE
        if place == size:
            place = 0
    return -1, digest, 0


put_keys: Callable[[_Table, bytes, int, Buffer, int, int, int], Put] = put_keys_python
survivors: Callable[[_Table, bytes, Buffer, int, int, int, bool], NewestRecords] = survivors_python
rebase: Callable[[Buffer, int, int, bool], bytes] = rebase_python
COMPILED = False
if os.environ.get("PYKBROKER_PURE") != "1":
    try:
        from pykbroker_wire.records._walk import put_keys as put_keys
        from pykbroker_wire.records._walk import rebase as rebase
        from pykbroker_wire.records._walk import survivors as survivors
    except ImportError:  # not built here, or built against another C library
        pass
    else:
        COMPILED = True
