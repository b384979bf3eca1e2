"""Replays records of consumer groups. This is the only mutator of their state.

Responsible for each record's effect on the group. A group begins with its first record and ends with the tombstone of
its epoch. Not responsible for the classic group that had the id before (shard.py).
"""

from __future__ import annotations

from typing import Final

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import ConsumerMember
from pykbroker.coordinator.group.consumer.consumer_records import (
    read_regex,
    read_target,
    with_assignment,
    with_metadata,
    without_assignment,
)
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from pykbroker_wire.stored.group.consumer_group_member_metadata import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from pykbroker_wire.stored.group.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from pykbroker_wire.stored.group.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
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

CONSUMER_KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def consumer_group_id(key: TopLevel) -> str:
    assert isinstance(key, CONSUMER_KEYS)
    return key.group_id


def replay_consumer(group: ConsumerGroup | None, record: CoordinatorRecord) -> ConsumerGroup | None:
    """Replay a record. Return the group after it, None if there is none."""
    key, value = record.key, record.value
    assert isinstance(key, CONSUMER_KEYS)
    if group is None:
        if value is None:
            # The log no longer has the beginning of the group.
            return None
        group = ConsumerGroup(key.group_id)
    if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
        member = group.members.get(key.member_id)
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            group.update_member(with_assignment(group.group_id, member or ConsumerMember(key.member_id), value))
        elif member is not None:
            group.update_member(without_assignment(member))
    elif isinstance(key, ConsumerGroupMemberMetadataKey):
        if isinstance(value, ConsumerGroupMemberMetadataValue):
            group.update_member(with_metadata(group.members.get(key.member_id) or ConsumerMember(key.member_id), value))
        else:
            group.remove_member(key.member_id)
    elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
            group.set_target(key.member_id, read_target(value))
        else:
            group.set_target(key.member_id, None)
    elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
        if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
            group.set_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        else:
            group.set_target_epoch(-1, 0)
    elif isinstance(key, ConsumerGroupMetadataKey):
        if isinstance(value, ConsumerGroupMetadataValue):
            group.set_epoch(value.epoch, value.metadata_hash)
        else:
            return None
    elif isinstance(key, ConsumerGroupRegularExpressionKey):
        resolved = read_regex(value) if isinstance(value, ConsumerGroupRegularExpressionValue) else None
        group.subscriptions.set_resolved(key.regular_expression, resolved)
    else:
        group.has_partition_metadata = value is not None
    return group
