"""Records of `__share_group_state`, byte for byte those of Apache Kafka 4.3.1: ShareSnapshot and ShareUpdate.

Both keys are group, topic id and partition. A ShareSnapshot without a value removes the share partition. A ShareUpdate
without a value is written by no release and is left out, as are records of types that a later release adds.

Responsible for building, encoding and decoding records. Not responsible for what they change (share_state.py).
"""

from __future__ import annotations

from typing import Final

from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.coordinator.share.share_state import ShareState, StateUpdate, in_order
from pykbroker.coordinator.share.state_batches import PersistedBatch
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.stored.share import share_snapshot, share_update
from pykbroker_wire.stored.share.share_snapshot import ShareSnapshotKey, ShareSnapshotValue
from pykbroker_wire.stored.share.share_update import ShareUpdateKey, ShareUpdateValue
from pykbroker_wire.stored_framing import encode_key, encode_value

_VERSION: Final = 0
#: The bytes of a batch in a record, and no less than those of all the rest.
_BATCH_BYTES: Final = 20
_OTHER_BYTES: Final = 100


def snapshot_record(key: SharePartitionKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=[
            share_snapshot.StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )
    return CoordinatorRecord(_snapshot_key(key), value, _VERSION)


def update_record(key: SharePartitionKey, update: StateUpdate) -> CoordinatorRecord:
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[
            share_update.StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in update.batches
        ],
    )
    return CoordinatorRecord(
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), value, _VERSION
    )


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    return CoordinatorRecord(_snapshot_key(key), None)


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def key_of(record: CoordinatorRecord) -> SharePartitionKey:
    key = record.key
    assert isinstance(key, ShareSnapshotKey | ShareUpdateKey)
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def state_of(value: ShareSnapshotValue) -> ShareState:
    """Return the state in a snapshot."""
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches(value.state_batches),
        create_ms=value.create_timestamp,
        write_ms=value.write_timestamp,
    )


def update_of(value: ShareUpdateValue) -> StateUpdate:
    """Return the content of an update."""
    return StateUpdate(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_batches(value.state_batches),
    )


def _batches(found: list[share_snapshot.StateBatch] | list[share_update.StateBatch]) -> tuple[PersistedBatch, ...]:
    return in_order(
        [
            PersistedBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in found
        ]
    )


def about_bytes(record: CoordinatorRecord) -> int:
    """Return a little more than the bytes that the record takes, without encoding it."""
    value = record.value
    assert isinstance(record.key, ShareSnapshotKey | ShareUpdateKey)
    batches = len(value.state_batches) if isinstance(value, ShareSnapshotValue | ShareUpdateValue) else 0
    return _OTHER_BYTES + 4 * len(record.key.group_id) + _BATCH_BYTES * batches


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    assert not isinstance(value, bytes)
    return encode_key(record.key), None if value is None else encode_value(value, record.value_version)


def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return None for a record that changes nothing. Raises DecodeError."""
    if key is None or len(key) < 2:
        raise DecodeError("a record of __share_group_state without a key")
    record_type = key[0] << 8 | key[1]
    if record_type == ShareSnapshotKey.API_KEY:
        snapshot_key, _ = ShareSnapshotKey.decode(key, 2, _VERSION)
        if value is None:
            return CoordinatorRecord(snapshot_key, None)
        version = _version(value)
        return CoordinatorRecord(snapshot_key, ShareSnapshotValue.decode(value, 2, version)[0], version)
    if record_type == ShareUpdateKey.API_KEY and value is not None:
        update_key, _ = ShareUpdateKey.decode(key, 2, _VERSION)
        version = _version(value)
        return CoordinatorRecord(update_key, ShareUpdateValue.decode(value, 2, version)[0], version)
    return None


def _version(value: Buffer) -> int:
    if len(value) < 2:
        raise DecodeError(f"a value of {len(value)} bytes in __share_group_state")
    return value[0] << 8 | value[1]
