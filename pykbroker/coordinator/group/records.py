"""Records of `__consumer_offsets`, byte for byte those of Apache Kafka 4.3.1.

A key is its type as int16 and a body of version 0. A value is its version as int16 and a body. Versions are those that
4.3.1 writes: GroupMetadata 3; OffsetCommit 4, or 1 with an explicit expiry (OffsetCommit requests up to version 4),
which no other version can store.

Values of committed offsets stay bytes, in memory too. So a million of them are loaded without decoding, and the garbage
collector has no objects to scan (a scan stopped the loop for a tenth of a second).

Responsible for building, encoding and decoding records. Only the keys are decoded for a few record types of streams
groups, which are kept here without service (kept_groups.py). Records of other types are skipped when the log is read
(`decode` returns None), because they belong to other coordinators. Not responsible for the meaning of records.
"""

from __future__ import annotations

from typing import Final

from pykbroker.coordinator.group.kept_groups import STREAMS_KEYS
from pykbroker.coordinator.group.share.share_records import SHARE_KEYS, SHARE_VALUES
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.errors import DecodeError
from pykbroker_wire.primitives import ZERO_UUID, Buffer, TopLevel
from pykbroker_wire.stored.group.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from pykbroker_wire.stored.group.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from pykbroker_wire.stored.group.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from pykbroker_wire.stored.group.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from pykbroker_wire.stored.group.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from pykbroker_wire.stored.group.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from pykbroker_wire.stored.group.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from pykbroker_wire.stored.group.group_metadata import GroupMetadataKey, GroupMetadataValue
from pykbroker_wire.stored.group.legacy_offset_commit import LegacyOffsetCommitKey
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey, OffsetCommitValue
from pykbroker_wire.stored_framing import encode_key, encode_value

OFFSET_COMMIT_VERSION: Final = 4
#: the only version that can store when an offset expires
OFFSET_COMMIT_WITH_EXPIRY_VERSION: Final = 1

_LEGACY_OFFSET_COMMIT: Final = LegacyOffsetCommitKey.API_KEY
_OFFSET_COMMIT: Final = OffsetCommitKey.API_KEY
#: key and value of the other records
_OTHERS: Final[tuple[tuple[type[TopLevel], type[TopLevel]], ...]] = (
    (GroupMetadataKey, GroupMetadataValue),
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    *zip(SHARE_KEYS, SHARE_VALUES, strict=True),
)
#: the same by the type of the record
_TYPES: Final = {key.API_KEY: (key, value) for key, value in _OTHERS}

#: type -> key. Values of these records stay bytes.
_KEPT: Final[dict[int, type[TopLevel]]] = {key.API_KEY: key for key in STREAMS_KEYS}


def offset_record(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_ms: int,
    expire_ms: int,
    topic_id: bytes = ZERO_UUID,
) -> CoordinatorRecord:
    """`expire_ms` -1 means that the offset expires by retention, as with all present clients."""
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )
    version = OFFSET_COMMIT_VERSION if expire_ms == -1 else OFFSET_COMMIT_WITH_EXPIRY_VERSION
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), encode_value(value, version)
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = record.value
    if value is not None and not isinstance(value, bytes):
        value = encode_value(value, record.value_version)
    return encode_key(record.key), value


def decode(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return None for a record of a type that does not concern this broker. Raises DecodeError."""
    if key is None or len(key) < 2:
        raise DecodeError("a record of __consumer_offsets without a key")
    record_type = key[0] << 8 | key[1]
    if record_type in (_OFFSET_COMMIT, _LEGACY_OFFSET_COMMIT):
        offset_key, _ = OffsetCommitKey.decode(key, 2, 0)
        return CoordinatorRecord(offset_key, None if value is None else bytes(value))
    types = _TYPES.get(record_type)
    if types is None:
        kept = _KEPT.get(record_type)
        if kept is None:
            return None
        return CoordinatorRecord(kept.decode(key, 2, 0)[0], None if value is None else bytes(value))
    message_key, _ = types[0].decode(key, 2, 0)
    if value is None:
        return CoordinatorRecord(message_key, None)
    version = _version(value)
    return CoordinatorRecord(message_key, types[1].decode(value, 2, version)[0], version)


def decode_offset(value: Buffer) -> OffsetCommitValue:
    """Decode a committed offset. Raises DecodeError."""
    return OffsetCommitValue.decode(value, 2, _version(value))[0]


def _version(value: Buffer) -> int:
    if len(value) < 2:
        raise DecodeError(f"a value of {len(value)} bytes in __consumer_offsets")
    return value[0] << 8 | value[1]
