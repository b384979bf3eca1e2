"""A leader's check of a batch before the append: returns what the append needs, or raises an error.

Responsible for Apache Kafka 4.3.1's checks, in its order. First the batch: one whole batch of magic 2, base offset 0,
the size limit of the topic, CRC, counts, control flag and sequence. Then the codec, and each record: structure, offset
delta, key, timestamp. Also responsible for what Kafka changes in an accepted batch. Base offset and leader epoch change
in place; timestamp type and max timestamp need a new CRC. The codec changes if the topic has another codec, and so do
the inner offsets of compressed batches if they are not consecutive.

Not responsible for producer ids, sequences and transactions (`producers.py`), nor for which client may write here.

Invariants: for any bytes the result is a `Validated` or a `KafkaError`; a batch is decompressed chunk by chunk and
never beyond `decompression_limit_bytes`; an error leaves the caller's bytes unchanged.

Stricter than Kafka, where Kafka's response harms its clients:
- uncompressed records whose offset deltas are not 0, 1, 2...: INVALID_RECORD (Kafka stores them wrong)
- bytes that the codec cannot read, unknown codecs: INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR). CORRUPT_MESSAGE would
  make clients retry, but the CRC was right, so the client made these bytes and would make them again
- more than 128 MiB out of one batch: MESSAGE_TOO_LARGE (Kafka decompresses without a limit)
- compressed records whose offset deltas are not 0, 1, 2...: encoded again (Kafka tries to, and fails with
  UNKNOWN_SERVER_ERROR)
- a compressed record whose size is not that of its fields: INVALID_RECORD (Kafka checks it only when it rewrites)
- record errors are listed up to MAX_RECORD_ERRORS
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_log.log_config import MAX_INT64, AppendOrigin, LogConfig
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAX_INT32,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    UP_TO_MAGIC,
    BatchHeader,
    CorruptBatch,
    iter_batches,
    restamp_timestamp,
    seal,
    stamp,
    verify_crc,
)
from pykbroker_wire.records.compression import (
    CODEC_BY_NAME,
    DEFAULT_LIMIT,
    Codec,
    CompressionError,
    TooLarge,
    compress,
    decompress,
    stream,
)
from pykbroker_wire.records.crc import crc32c
from pykbroker_wire.records.dedupe import rebase
from pykbroker_wire.records.record import InvalidRecord
from pykbroker_wire.records.walk import (
    COMPILED,
    KEYLESS,
    MIN_INT64,
    RecordRules,
    examine_stream,
    walk,
    walk_stream,
)

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer

AT_ONCE_BYTES = 1 << 20
"""A turn of the event loop decompresses and checks at most this much of a compressed batch: 1 to 5 ms."""
MOST_COMPRESSED_AT_ONCE = 1 << 18
"""A larger compressed batch usually holds more than AT_ONCE_BYTES, so a turn does not try it."""
MOST_PLAIN_AT_ONCE = 1 << 22
"""A turn checks an uncompressed batch up to this size: 1 to 5 ms."""

MAX_RECORD_ERRORS = 1000
"""Kafka lists every wrong record, and a batch can hold 150,000 of them in a megabyte."""

_LENGTH_AND_MAGIC = Struct(">8xi4xb")  # offset, length, epoch, magic
_MIN_SIZE_OF_ANY_MAGIC = 14


class RecordErrors(KafkaError):
    """Some records of the batch are refused, and therefore the whole batch (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.record_errors)


class NotOneBatch(KafkaError):
    """The produced bytes are not one batch of magic 2; the log was not used."""


class TooMuchAtOnce(Exception):  # no error of the batch
    """Checking this batch takes longer than a turn of the event loop may: check it elsewhere (`validate`)."""


class Validated:
    """A valid batch, with the values that the log needs from it. `assign` makes it ready to be written. Pickles."""

    __slots__ = (
        "_restamped",
        "attributes",
        "base_sequence",
        "last_offset",
        "log_append_time_ms",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "records",
        "rewritten",
    )

    def __init__(
        self,
        records: memoryview,
        max_timestamp: int,
        log_append_time_ms: int,
        record_count: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        attributes: int,
        rewritten: bool,
        restamped: tuple[int, ...] | None,
    ) -> None:
        self.records = records
        """One batch, in the caller's memory and changed in place, unless that was read-only or had to be rewritten."""
        self.max_timestamp = max_timestamp
        self.log_append_time_ms = log_append_time_ms
        """-1 if the topic keeps the time of creation."""
        self.record_count = record_count
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.attributes = attributes
        self.rewritten = rewritten
        """True if the records were encoded again; then the size may have changed."""
        self._restamped = restamped
        """The fields of the header, if its timestamps change."""

    def __reduce__(self) -> tuple[object, ...]:
        state = {name: getattr(self, name) for name in self.__slots__ if hasattr(self, name)}
        state["records"] = bytearray(self.records)
        return _restored, (state,)

    def assign(self, offset: int, leader_epoch: int) -> None:
        """Give the batch `offset` and the offsets after it, and write the broker's fields into it. Raises nothing."""
        view = self.records
        if view.readonly:
            # A copy of the batch; the network path gives writable memory.
            view = self.records = memoryview(bytearray(view))
        stamp(view, 0, offset, leader_epoch)
        if self._restamped is not None:
            is_append_time = self.log_append_time_ms != -1
            header = BatchHeader._make(self._restamped)
            restamp_timestamp(view, 0, header, self.max_timestamp, log_append_time=is_append_time)
        self.last_offset = offset + self.record_count - 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return self.base_sequence + self.record_count - 1 & MAX_INT32


class CheckedBatch(NamedTuple):
    """A batch that was checked elsewhere (`check_elsewhere`), to be appended. Pickles."""

    batch: Validated
    config: LogConfig

    def under(self, config: LogConfig) -> Validated:
        """Return the batch if it was checked with this configuration. Raises TooMuchAtOnce."""
        if self.config != config:
            raise TooMuchAtOnce
        return self.batch


def check_elsewhere(records: Buffer, config: LogConfig, now_ms: int) -> CheckedBatch | KafkaError:
    """Check a client's batch on a thread or in another process, however long it takes. Return the checked batch, or the
    error of a wrong batch."""
    try:
        return CheckedBatch(validate(records, config, now_ms=now_ms), config)
    except KafkaError as error:
        return error


def validate_and_assign(
    records: Buffer | None,
    config: LogConfig,
    *,
    offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    decompression_limit_bytes: int = DEFAULT_LIMIT,
) -> Validated:
    """Check one batch by the topic's `config`, however long that takes, and give it `offset` and the offsets after it.
    Raises KafkaError, also RecordErrors."""
    batch = validate(
        records,
        config,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        origin=origin,
        decompression_limit_bytes=decompression_limit_bytes,
    )
    batch.assign(offset, leader_epoch)
    return batch


def validate(
    records: Buffer | None,
    config: LogConfig,
    *,
    now_ms: int,
    leader_epoch: int = -1,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    decompression_limit_bytes: int = DEFAULT_LIMIT,
    at_once: bool = False,
) -> Validated:
    """Check one batch by the topic's `config`; its bytes stay unchanged until `assign`.

    `leader_epoch` is the epoch of a Raft leader, which its batches must carry. `at_once` means that this runs in a turn
    of the event loop: raise TooMuchAtOnce if the batch takes too long. (The records of a compressed batch are counted
    during decompression, so up to AT_ONCE_BYTES of them may be checked in vain.) Raises KafkaError, also RecordErrors.
    """
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There are no records")
    view = records if type(records) is memoryview else memoryview(records)
    size = len(view)
    if size < HEADER_SIZE:
        _refuse_short(view)
    fields = HEADER.unpack_from(view)
    (
        base_offset,
        length,
        batch_epoch,
        magic,
        crc,
        attributes,
        last_delta,
        _,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = fields
    if length != size - LOG_OVERHEAD or magic != MAGIC:
        view = _first_batch(view)
        size = len(view)
    is_client = origin is AppendOrigin.CLIENT
    if base_offset or not is_client:
        _check_place(base_offset, batch_epoch, origin, leader_epoch)
    if size > config.max_message_bytes and origin is not AppendOrigin.RAFT_LEADER:
        raise _too_large(f"The batch has {size} bytes", config)
    codec = attributes & CODEC_MASK
    if at_once:
        if size > (MOST_COMPRESSED_AT_ONCE if codec else MOST_PLAIN_AT_ONCE):
            raise TooMuchAtOnce
        decompression_limit_bytes = min(decompression_limit_bytes, AT_ONCE_BYTES)
    if crc32c(view[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The CRC of the batch is wrong")
    if count <= 0 or last_delta != count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The batch counts {count} records and spans {last_delta + 1} offsets"
        )
    if is_client and (attributes & CONTROL or (producer_id >= 0 and base_sequence < 0)):
        raise _no_clients_batch(attributes, producer_id, base_sequence)
    greatest, is_dense = _check_records(view, fields, config, now_ms, decompression_limit_bytes, at_once)
    append_time = -1
    is_create_time = config.message_timestamp_type == "CreateTime"
    if not is_create_time:
        append_time = greatest = now_ms
    compression_type = config.compression_type
    target = codec if compression_type == "producer" else CODEC_BY_NAME[compression_type]
    rewritten = (target != codec or not is_dense) and not (codec == Codec.NONE and attributes & CONTROL)
    if rewritten:
        if codec == Codec.NONE and target == Codec.NONE:
            raise KafkaError(ErrorCode.INVALID_RECORD, "The offsets of the records are not 0, 1, 2 and so on")
        if at_once and codec == Codec.NONE and size > MOST_COMPRESSED_AT_ONCE:
            raise TooMuchAtOnce
        level = config.compression_level(target)
        view = _rewrite(
            view[HEADER_SIZE:], fields, is_dense, target, level, greatest, append_time, decompression_limit_bytes
        )
        if len(view) > config.max_message_bytes and origin is not AppendOrigin.RAFT_LEADER:
            raise _too_large(f"The batch has {len(view)} bytes with compression.type={compression_type}", config)
    elif not is_dense:
        raise KafkaError(ErrorCode.INVALID_RECORD, "The offsets of the control records are not 0, 1, 2 and so on")
    is_stale = not rewritten and (greatest != max_timestamp or is_create_time is (attributes & LOG_APPEND_TIME != 0))
    return Validated(
        view,
        greatest,
        append_time,
        count,
        producer_id,
        producer_epoch,
        base_sequence,
        attributes,
        rewritten,
        fields if is_stale else None,
    )


# --- the steps of a check ---------------------------------------------------------------------------------------------


def _check_place(base_offset: int, batch_epoch: int, origin: AppendOrigin, leader_epoch: int) -> None:
    """Check the offset of a client's batch, and the epoch of a Raft leader's."""
    if origin is AppendOrigin.CLIENT and base_offset:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The base offset of a produced batch is 0, not {base_offset}")
    if origin is AppendOrigin.RAFT_LEADER and batch_epoch != leader_epoch:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The Raft leader of epoch {leader_epoch} wrote a batch of epoch {batch_epoch}"
        )


def _too_large(batch: str, config: LogConfig) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{batch}, and max.message.bytes is {config.max_message_bytes}")


def _no_clients_batch(attributes: int, producer_id: int, base_sequence: int) -> KafkaError:
    if attributes & CONTROL:
        return KafkaError(ErrorCode.INVALID_RECORD, "Clients must not write control records")
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"The batch of producer {producer_id} has the invalid sequence number {base_sequence}"
    )


def _check_records(
    view: memoryview, fields: tuple[int, ...], config: LogConfig, now_ms: int, limit: int, at_once: bool
) -> tuple[int, bool]:
    """Check the structure, keys and timestamps of all records. Return the greatest timestamp, and True if the offset
    deltas are 0, 1, 2 and so on."""
    _, _, _, _, _, attributes, _, base_timestamp, _, _, _, _, count = fields
    try:
        if attributes & CODEC_MASK:
            # As in Apache Kafka 4.4, only records of compressed batches have a limit of their own.
            chunks = stream(attributes & CODEC_MASK, view[HEADER_SIZE:], limit)
            walked = walk_stream(chunks, count, config.max_decompressed_message_bytes)
        else:
            # Python indexes bytes a third faster than a view, and copying 1 MB costs 60 us against 1 ms of walking.
            walked = walk(view if COMPILED else bytes(view), HEADER_SIZE, 0, count)
            if walked[1] != count or walked[0] != len(view):
                end, size = walked[0] - HEADER_SIZE, len(view) - HEADER_SIZE
                raise InvalidRecord(f"{walked[1]} of its {count} records end at byte {end} of {size}")
    except (InvalidRecord, CompressionError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The batch is malformed: {error}") from None
    except TooLarge as error:
        if at_once:
            raise TooMuchAtOnce from None
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"The decompressed batch is too large: {error}") from None
    _, _, low, high, keyless, is_dense = walked
    least, greatest = base_timestamp + low, base_timestamp + high
    # The extremes show whether any record can be wrong; only then each record is checked.
    if (
        attributes & LOG_APPEND_TIME
        or (keyless and config.compact)
        or (
            (greatest - now_ms > config.timestamp_after_max_ms or now_ms - least > config.timestamp_before_max_ms)
            and config.message_timestamp_type == "CreateTime"
        )
        or greatest > MAX_INT64
        or least < MIN_INT64
    ):
        greatest = _check_each(view[HEADER_SIZE:], fields, config, now_ms, limit)
    elif greatest < NO_TIMESTAMP:
        greatest = NO_TIMESTAMP
    return greatest, is_dense


# --- the slow path ----------------------------------------------------------------------------------------------------


def _restored(state: dict[str, object]) -> Validated:
    batch = Validated.__new__(Validated)
    state["records"] = memoryview(state["records"])  # type: ignore[arg-type]
    for name, value in state.items():
        setattr(batch, name, value)
    return batch


def _refuse_short(view: memoryview) -> None:
    """Raise the error for less than one header. Kafka calls it corrupt if the length or the magic is wrong already,
    else empty."""
    if len(view) >= UP_TO_MAGIC:
        _first_batch(view)
    elif len(view) >= LOG_OVERHEAD and _length_at(view, 0) < _MIN_SIZE_OF_ANY_MAGIC:
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, "The length of the batch is too small")
    raise NotOneBatch(ErrorCode.INVALID_RECORD, "There is no whole batch in the records")


def _length_at(view: memoryview, position: int) -> int:
    """Return the length field of the batch that begins there."""
    return int.from_bytes(view[position + LENGTH_AT : position + LOG_OVERHEAD], "big", signed=True)


def _first_batch(view: memoryview) -> memoryview:
    """Return the batch at the start, without an incomplete batch after it, which Kafka cuts off silently."""
    length, magic = _LENGTH_AND_MAGIC.unpack_from(view)
    if length < _MIN_SIZE_OF_ANY_MAGIC:
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"The length of the batch is too small: {length}")
    if not 0 <= magic <= MAGIC:
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"The batch has the unknown magic byte {magic}")
    end = length + LOG_OVERHEAD
    if end > len(view):
        raise NotOneBatch(ErrorCode.INVALID_RECORD, f"The batch has {end} bytes, but only {len(view)} were sent")
    if magic != MAGIC:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, f"The batch has the magic byte {magic}, and must have 2")
    rest = len(view) - end
    if rest >= LOG_OVERHEAD:
        next_length = _length_at(view, end)
        if next_length < _MIN_SIZE_OF_ANY_MAGIC:
            raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"The length of a second batch is too small: {next_length}")
        if rest >= UP_TO_MAGIC:
            if not 0 <= _LENGTH_AND_MAGIC.unpack_from(view, end)[1] <= MAGIC:
                raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, "A second batch has an unknown magic byte")
            if rest >= next_length + LOG_OVERHEAD:
                raise NotOneBatch(ErrorCode.INVALID_RECORD, "The request has more than one batch for the partition")
    if end < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The length of the batch is too small: {length}")
    return view[:end]


def _check_each(payload: Buffer, fields: tuple[int, ...], config: LogConfig, now_ms: int, limit: int) -> int:
    """Check each record of a batch that was walked before. Return the greatest timestamp, or raise RecordErrors."""
    header = BatchHeader._make(fields)
    codec, count = header.attributes & CODEC_MASK, header.record_count
    rules = RecordRules(
        header.base_timestamp,
        now_ms,
        config.timestamp_before_max_ms,
        config.timestamp_after_max_ms,
        keyed=config.compact,
        timed=config.message_timestamp_type == "CreateTime",
    )
    chunks: Iterable[bytes] = stream(codec, payload, limit) if codec else [bytes(payload)]
    if header.attributes & LOG_APPEND_TIME:
        # The batch has one timestamp for all records, so an error of one record applies to each that has a key.
        greatest = header.max_timestamp
        _, keyless = examine_stream(chunks, count, rules._replace(timed=False), MAX_RECORD_ERRORS)
        broken = {index: _NO_KEY for index, _, _ in keyless}
        is_untimely = bool(rules.broken(greatest, is_keyless=False))
        if is_untimely or not rules.timed or greatest == NO_TIMESTAMP:
            said = _untimely(greatest, rules) if is_untimely else "Only a broker sets the timestamp type LogAppendTime"
            broken = {index: broken.get(index, said) for index in range(min(count, MAX_RECORD_ERRORS))}
    else:
        greatest, wrong = examine_stream(chunks, count, rules, MAX_RECORD_ERRORS)
        broken = {index: _NO_KEY if kind == KEYLESS else _untimely(at, rules, index) for index, kind, at in wrong}
    if not broken:
        return max(greatest, NO_TIMESTAMP)
    errors = list(broken.items())
    if any(said is not _NO_KEY for said in broken.values()):
        raise RecordErrors(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    raise RecordErrors(
        ErrorCode.INVALID_RECORD, f"{len(errors)} records have been rejected; the first: {errors[0][1]}", errors
    )


_NO_KEY = "A compacted topic takes no record without a key"


def _untimely(timestamp: int, rules: RecordRules, index: int | None = None) -> str:
    whose = "the batch" if index is None else f"the record at offset {index}"
    earliest, latest = rules.now_ms - rules.before_max_ms, rules.now_ms + rules.after_max_ms
    return f"Timestamp {timestamp} of {whose} is out of range: [{earliest}, {latest}]"


def _rewrite(
    payload: Buffer,
    fields: tuple[int, ...],
    dense: bool,
    target: int,
    level: int | None,
    greatest: int,
    append_time: int,
    limit: int,
) -> memoryview:
    """Return the batch in the topic's codec and with consecutive offsets."""
    header = BatchHeader._make(fields)
    data = decompress(header.attributes & CODEC_MASK, payload, limit)
    if not dense:
        data = rebase(data, header.record_count, 0, True)
    # Consecutive records keep their bytes: their deltas count from the header's base timestamp, which stays.
    return memoryview(
        bytearray(
            seal(
                compress(target, data, level) if target else data,
                record_count=header.record_count,
                last_offset_delta=header.last_offset_delta,
                base_timestamp=header.base_timestamp,
                max_timestamp=greatest,
                attributes=header.attributes & (TRANSACTIONAL | CONTROL)
                | target
                | (LOG_APPEND_TIME if append_time != -1 else 0),
                base_offset=0,
                leader_epoch=0,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        )
    )


def given_batches(data: Buffer, expected_offset: int, *, verify: bool) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of the whole batches from a leader. They keep their offsets: there may be gaps, but no
    batch begins before the log's end. Raises CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE."""
    batches: list[tuple[int, BatchHeader]] = []
    try:
        for position, header in iter_batches(data):
            if verify and not verify_crc(data, position, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
            if header.base_offset < expected_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"a batch at offset {header.base_offset}, expected {expected_offset} or more",
                )
            expected_offset = header.next_offset
            batches.append((position, header))
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return batches
