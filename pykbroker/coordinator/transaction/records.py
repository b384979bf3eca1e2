"""Records of `__transaction_state`, byte for byte those of Apache Kafka 4.3.1.

The key is the transactional id. The value is its whole state in version 0, or in the flexible version 1 from
transaction.version 1 on, which adds the previous and the next producer id and the client's transaction version. A null
value removes the id. An Empty state has null partitions, each other state a list.

Responsible for encoding and decoding state. Not responsible for what states mean (states.py, shard.py). No value holds
`last_epoch`, so it is -1 when a value is read. A failover loses it, as in Apache Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker.coordinator.transaction.states import EMPTY, TransactionState
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.primitives import Buffer, pack_int16, pack_int32, varint
from pykbroker_wire.stored.transaction.transaction_log import TransactionLogKey, TransactionLogValue

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

_KEY_TYPE: Final = TransactionLogKey.API_KEY
_FLEXIBLE_FROM_TRANSACTION_VERSION: Final = 1

# version of the value, producer id, epoch, timeout, state
_HEAD: Final = Struct(">hqhib")
# last update, start
_TIMES: Final = Struct(">qq")
# tag, size, value
_TAGGED_ID: Final = Struct(">bbq")
_TAGGED_VERSION: Final = Struct(">bbh")


class Transaction(NamedTuple):
    """A transactional id and its present or last transaction. `client_version` is the transaction.version that the
    client uses: with 2 each end raises the epoch (KIP-890)."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    #: the epoch before the last increment, for a client that did not get the answer; -1 if no client may come back with
    #: it
    last_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    client_version: int


def transaction_record(transactional_id: str, transaction: Transaction, transaction_version: int) -> CoordinatorRecord:
    """`transaction_version` is the cluster's finalised level. Values are bytes from the start and are encoded by hand,
    because each transaction writes three records (tests/coordinator/transaction/test_records.py compares them to the
    generated writer's)."""
    version = 1 if transaction_version >= _FLEXIBLE_FROM_TRANSACTION_VERSION else 0
    value = _flexible(transaction) if version else _classic(transaction)
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), value, version)


def remembered(transaction: Transaction, version: int) -> Transaction:
    """Return the transaction with only the fields that a record of this version stores, and with `last_epoch`."""
    if version >= 1:
        return transaction
    return transaction._replace(previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_version=0)


def _classic(transaction: Transaction) -> bytes:
    parts = [_HEAD.pack(0, *_head(transaction))]
    if transaction.state is EMPTY:
        assert not transaction.partitions
        parts.append(pack_int32(-1))
    else:
        topics = _by_topic(transaction.partitions)
        parts.append(pack_int32(len(topics)))
        for topic, indexes in topics:
            name = topic.encode()
            parts += (pack_int16(len(name)), name, pack_int32(len(indexes)), *map(pack_int32, indexes))
    parts.append(_TIMES.pack(transaction.update_ms, transaction.start_ms))
    return b"".join(parts)


def _flexible(transaction: Transaction) -> bytes:
    parts = [_HEAD.pack(1, *_head(transaction))]
    if transaction.state is EMPTY:
        assert not transaction.partitions
        parts.append(b"\0")
    else:
        topics = _by_topic(transaction.partitions)
        parts.append(varint(len(topics) + 1))
        for topic, indexes in topics:
            name = topic.encode()
            parts += (varint(len(name) + 1), name, varint(len(indexes) + 1), *map(pack_int32, indexes), b"\0")
    parts.append(_TIMES.pack(transaction.update_ms, transaction.start_ms))
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(0, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(1, 8, transaction.next_producer_id))
    if transaction.client_version:
        tags.append(_TAGGED_VERSION.pack(2, 2, transaction.client_version))
    parts.append(varint(len(tags)))
    return b"".join(parts + tags)


def _head(transaction: Transaction) -> tuple[int, int, int, int]:
    return transaction.producer_id, transaction.epoch, transaction.timeout_ms, transaction.state


def _by_topic(partitions: frozenset[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return the partitions by topic, sorted, because a set has no order and the same run must write the same bytes."""
    if len(partitions) == 1:
        ((topic, index),) = partitions
        return [(topic, [index])]
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return list(by_topic.items())


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_of(stored: bytes) -> Transaction:
    """Decode a value. Raises DecodeError."""
    if len(stored) < 2:
        raise DecodeError(f"a value of {len(stored)} bytes in __transaction_state")
    value = TransactionLogValue.decode(stored, 2, stored[0] << 8 | stored[1])[0]
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise DecodeError(f"in __transaction_state: {error}") from None
    return Transaction(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        epoch=value.producer_epoch,
        last_epoch=NO_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    assert isinstance(record.key, TransactionLogKey)
    assert record.value is None or isinstance(record.value, bytes)
    name = record.key.transactional_id.encode()
    return b"\0\0" + pack_int16(len(name)) + name, record.value


def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return None for a record of a type that does not concern this broker. Values stay bytes. Raises DecodeError."""
    if key is None or len(key) < 2:
        raise DecodeError("a record of __transaction_state without a key")
    if key[0] << 8 | key[1] != _KEY_TYPE:
        return None
    decoded_key, _ = TransactionLogKey.decode(key, 2, 0)
    return CoordinatorRecord(decoded_key, None if value is None else bytes(value))
