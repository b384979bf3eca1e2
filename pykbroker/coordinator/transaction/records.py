"""Records of `__transaction_state`, byte for byte those of Apache Kafka 4.3.1.

The key is the transactional id; the value its whole state in version 0, or in the flexible version 1 from
transaction.version 1 on, which also says the previous and the next producer id and how the client talked. A null value
forgets the id. An Empty state has null partitions, every other a list.

Responsible for state to message and back, and for bytes. Not responsible for what states mean (states.py, shard.py).
What a value does not say, `last_epoch`, is -1 when it is read: as in Apache Kafka, a failover forgets it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykbroker.coordinator.result import Record
from pykbroker.coordinator.transaction.states import EMPTY, TransactionState
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.stored.transaction.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from pykbroker_wire.stored_framing import encode_key, encode_value

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

_KEY_TYPE: Final = TransactionLogKey.API_KEY
_FLEXIBLE_FROM_TRANSACTION_VERSION: Final = 1


class Transaction(NamedTuple):
    """A transactional id and its present or last transaction. `client_version` is the transaction.version in which the
    client talks: 2 raises the epoch with every end (KIP-890)."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    epoch: int
    #: the epoch before the last rise, for a client that did not hear of it; -1: there is none that may come back
    last_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    client_version: int


def transaction_record(transactional_id: str, transaction: Transaction, transaction_version: int) -> Record:
    """`transaction_version`: what the cluster has agreed on."""
    partitions: list[PartitionsSchema] | None = None
    if transaction.state is not EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in transaction.partitions:
            by_topic.setdefault(topic, []).append(index)
        # In an order of their own: a set has none, and the same run shall write the same bytes.
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=sorted(by_topic[topic])) for topic in sorted(by_topic)
        ]
    else:
        assert not transaction.partitions
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction_version < _FLEXIBLE_FROM_TRANSACTION_VERSION:
        return Record(TransactionLogKey(transactional_id=transactional_id), value, 0)
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return Record(TransactionLogKey(transactional_id=transactional_id), value, 1)


def tombstone(transactional_id: str) -> Record:
    return Record(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_of(value: TransactionLogValue, version: int, last_epoch: int = NO_EPOCH) -> Transaction:
    """What a record of this version keeps."""
    flexible = version >= 1
    return Transaction(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id if flexible else NO_PRODUCER_ID,
        next_producer_id=value.next_producer_id if flexible else NO_PRODUCER_ID,
        epoch=value.producer_epoch,
        last_epoch=last_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version if flexible else 0,
    )


def encode(record: Record) -> tuple[bytes, bytes | None]:
    value = record.value
    if value is not None and not isinstance(value, bytes):
        value = encode_value(value, record.value_version)
    return encode_key(record.key), value


def decode(key: Buffer | None, value: Buffer | None) -> Record | None:
    """None for a type of record that is not ours to understand. Raises DecodeError."""
    if key is None or len(key) < 2:
        raise DecodeError("a record of __transaction_state without a key")
    if key[0] << 8 | key[1] != _KEY_TYPE:
        return None
    decoded_key, _ = TransactionLogKey.decode(key, 2, 0)
    if value is None:
        return Record(decoded_key, None)
    if len(value) < 2:
        raise DecodeError(f"a value of {len(value)} bytes in __transaction_state")
    version = value[0] << 8 | value[1]
    return Record(decoded_key, TransactionLogValue.decode(value, 2, version)[0], version)
