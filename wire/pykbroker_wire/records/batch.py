"""A record batch, format v2: a header over bytes that are not copied, and a builder for new batches.

     0 base offset int64        21 attributes int16: codec 0-2, log append time 3, transactional 4, control 5, horizon 6
     8 batch length int32       23 last offset delta int32     43 producer id int64        57 record count int32
    12 leader epoch int32       27 base timestamp int64        51 producer epoch int16     61 records
    16 magic int8               35 max timestamp int64         53 base sequence int32
    17 CRC-32C uint32 of everything from 21 on

Base offset and leader epoch come before the bytes that the CRC covers, so a leader can set them without a new CRC.
With the delete-horizon flag the base timestamp is the horizon; record timestamps stay relative to it.

Responsible for headers. Records are in `record.py`, and the checks of a client's batch in `pykbroker_log.validate`.
Invariants: reading never copies record bytes; `CorruptBatch` is the only error for bytes that are no batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_wire.records.compression import Codec, compress
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.layout import (
    ATTRIBUTES_AT as ATTRIBUTES_AT,
)
from pykbroker_wire.records.layout import (
    CODEC_MASK as CODEC_MASK,
)
from pykbroker_wire.records.layout import (
    CONTROL as CONTROL,
)
from pykbroker_wire.records.layout import (
    CRC_AT,
    LEADER_EPOCH_AT,
    MAX_TIMESTAMP_AT,
)
from pykbroker_wire.records.layout import (
    CRC_START as CRC_START,
)
from pykbroker_wire.records.layout import (
    DELETE_HORIZON as DELETE_HORIZON,
)
from pykbroker_wire.records.layout import (
    HEADER_SIZE as HEADER_SIZE,
)
from pykbroker_wire.records.layout import (
    LENGTH_AT as LENGTH_AT,
)
from pykbroker_wire.records.layout import (
    LOG_APPEND_TIME as LOG_APPEND_TIME,
)
from pykbroker_wire.records.layout import (
    LOG_OVERHEAD as LOG_OVERHEAD,
)
from pykbroker_wire.records.layout import (
    MAGIC as MAGIC,
)
from pykbroker_wire.records.layout import (
    MAGIC_AT as MAGIC_AT,
)
from pykbroker_wire.records.layout import (
    MIN_BATCH_LENGTH as MIN_BATCH_LENGTH,
)
from pykbroker_wire.records.layout import (
    PRODUCER_AT as PRODUCER_AT,
)
from pykbroker_wire.records.layout import (
    TRANSACTIONAL as TRANSACTIONAL,
)
from pykbroker_wire.records.layout import (
    UP_TO_MAGIC as UP_TO_MAGIC,
)
from pykbroker_wire.records.record import Headers, encode_record

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAX_INT32 = 2**31 - 1

HEADER = Struct(">qiibIhiqqqhii")
"""The whole header in the order of the fields of BatchHeader."""
_COVERED = Struct(">hiqqqhii")
_FRONT = Struct(">qiibI")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_UINT32 = Struct(">I")
PRODUCER = Struct(">qhi")
"""Producer id, producer epoch, base sequence."""


class CorruptBatch(ValueError):
    """The bytes are not a batch of format v2."""


class BatchHeader(NamedTuple):
    """The header's fields. A named tuple, because one unpack makes it without a look at each field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, buf: Buffer, pos: int = 0) -> BatchHeader:
        """Return the header at `pos`, unchecked: lengths, magic and CRC are as in the bytes. Raises CorruptBatch if the
        header is cut off."""
        try:
            return cls._make(HEADER.unpack_from(buf, pos))
        except StructError:
            raise CorruptBatch(f"{len(buf) - pos} bytes are less than a batch header") from None

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Codec:
        """Raises CorruptBatch for the ids 5 to 7."""
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptBatch(f"Unknown compression type id: {self.attributes & CODEC_MASK}") from None

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences go from 0 to 2^31 - 1 and start again at 0."""
    return (sequence + increment) & MAX_INT32


def decrement_sequence(sequence: int, decrement: int) -> int:
    return (sequence - decrement) & MAX_INT32


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every whole batch from `pos` on. An incomplete last batch ends the iteration without
    an error, as in a fetched slice. A length or magic that no batch can have raises CorruptBatch."""
    end = len(buf)
    while end - pos >= HEADER_SIZE:
        header = BatchHeader._make(HEADER.unpack_from(buf, pos))
        if header.magic != MAGIC:
            raise CorruptBatch(f"Invalid magic {header.magic} at position {pos}")
        if header.batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"Batch length {header.batch_length} at position {pos} is too small")
        after = pos + LOG_OVERHEAD + header.batch_length
        if after > end:
            return
        yield pos, header
        pos = after


def verify_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Return True if the whole batch is there and its CRC is right. Above 32 KiB the GIL is released."""
    end = pos + header.size_in_bytes
    if header.batch_length < MIN_BATCH_LENGTH or end > len(buf):
        return False
    crc: int = crc32c(memoryview(buf)[pos + CRC_START : end])
    return crc == header.crc


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and leader epoch that a leader assigns; the CRC does not cover them."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def restamp_timestamp(
    buf: bytearray | memoryview, pos: int, header: BatchHeader, max_timestamp: int, *, log_append_time: bool
) -> None:
    """Write max timestamp and timestamp type, and a new CRC if one of them changes. Attribute bits without a meaning
    are then dropped, as Kafka drops them."""
    flag = LOG_APPEND_TIME if log_append_time else 0
    if flag == header.attributes & LOG_APPEND_TIME and max_timestamp == header.max_timestamp:
        return
    attributes = header.attributes & (CODEC_MASK | TRANSACTIONAL | CONTROL | DELETE_HORIZON) | flag
    _INT16.pack_into(buf, pos + CRC_START, attributes)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    _UINT32.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + CRC_START : pos + header.size_in_bytes]))


# --- building ---------------------------------------------------------------------------------------------------------


def seal(
    payload: Buffer,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Put a header with its CRC before records that are already encoded (and compressed as in `attributes`)."""
    covered = _COVERED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32c(payload, crc32c(covered))
    front = _FRONT.pack(base_offset, MIN_BATCH_LENGTH + len(payload), leader_epoch, MAGIC, crc)
    return b"".join((front, covered, payload))


def build_batch(
    records: Iterable[tuple[Buffer | None, Buffer | None, Headers, int]],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Build one batch of (key, value, headers, timestamp) at consecutive offsets. Raises ValueError without a
    record."""
    parts = []
    delta = 0
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for key, value, headers, timestamp in records:
        if delta == 0:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        parts.append(encode_record(delta, timestamp - base_timestamp, key, value, headers))
        delta += 1
    if not parts:
        raise ValueError("a batch has at least one record")
    payload = b"".join(parts)
    attributes = codec
    if codec:
        payload = compress(codec, payload, level)
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    return seal(
        payload,
        record_count=delta,
        last_offset_delta=delta - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class BatchBuilder:
    """Builds a batch record by record. Offsets may have gaps (compaction leaves them), so each record may be given an
    offset."""

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_timestamp",
        "_codec",
        "_count",
        "_identity",
        "_last_offset",
        "_leader_epoch",
        "_level",
        "_log_append_time_ms",
        "_max_timestamp",
        "_parts",
        "_size",
    )

    def __init__(
        self,
        *,
        codec: int = Codec.NONE,
        level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._identity = (producer_id, producer_epoch, base_sequence)
        self._log_append_time_ms = log_append_time_ms
        self._base_timestamp = delete_horizon_ms  # None stands for the timestamp of the first record
        self._attributes = (
            codec
            | (TRANSACTIONAL if transactional else 0)
            | (CONTROL if control else 0)
            | (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
            | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
        )
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE
        self._count = 0
        self._last_offset = base_offset - 1
        self._max_timestamp = NO_TIMESTAMP

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers = (),
        timestamp: int = NO_TIMESTAMP,
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record at `offset`, by default the next one. Returns its offset."""
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise ValueError(f"offset {offset} does not follow {self._last_offset}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        part = encode_record(offset - self._base_offset, timestamp - self._base_timestamp, key, value, headers)
        self._parts.append(part)
        self._size += len(part)
        self._count += 1
        self._last_offset = offset
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        return offset

    @property
    def record_count(self) -> int:
        return self._count

    @property
    def size_in_bytes(self) -> int:
        """The size of the result of `build` without compression."""
        return self._size

    def build(self, *, last_offset: int | None = None) -> bytes:
        """Build the batch. `last_offset` keeps the range of a batch whose last records, or all, compaction has
        removed."""
        if last_offset is None:
            last_offset = self._last_offset
        if last_offset < self._base_offset:
            raise ValueError("a batch without records needs a last offset")
        payload = b"".join(self._parts)
        if self._codec and self._parts:
            payload = compress(self._codec, payload, self._level)
        producer_id, producer_epoch, base_sequence = self._identity
        append_time = self._log_append_time_ms
        return seal(
            payload,
            record_count=self._count,
            last_offset_delta=last_offset - self._base_offset,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=self._max_timestamp if append_time is None else append_time,
            attributes=self._attributes if self._parts else self._attributes & ~CODEC_MASK,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
