"""The records of a share group in `__consumer_offsets`, byte for byte those of Apache Kafka 4.3.1, and their replay.

    10  a member's identity and subscription        13  a member's part of the target
    11  the group epoch                             14  a member's epoch and partitions
    12  the epoch of the target                     15  the share partitions with a state (share_partition_states.py)

Responsible for building the records, for their values and for each record's effect on the group. `replay_share` is the
only mutator of a group's replicated state. A group begins with its first record and ends with the tombstone of its
epoch. Not responsible for when records are written (share_step.py).

All values have version 0. A later release may write a later version, and then the load of the shard fails, as in Apache
Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import LEAVE_EPOCH, NO_PARTITIONS, SharedPartitions, ShareMember
from pykbroker.coordinator.group.share.share_partition_states import (
    NamedPartitions,
    SharePartitionStates,
    TopicStates,
)
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.group.share_group_current_member_assignment import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from pykbroker_wire.stored.group.share_group_member_metadata import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from pykbroker_wire.stored.group.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from pykbroker_wire.stored.group.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from pykbroker_wire.stored.group.share_group_target_assignment_member import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from pykbroker_wire.stored.group.share_group_target_assignment_metadata import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

#: Members move to their target at once, so each is stable.
_STABLE: Final = 0

SHARE_KEYS: Final = (
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
#: The types of their values, in the same order.
SHARE_VALUES: Final[tuple[type[TopLevel], ...]] = (
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupStatePartitionMetadataValue,
)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's identity and subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def target_record(group_id: str, member_id: str, target: SharedPartitions) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's epoch and partitions."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ],
    )
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def states_record(group_id: str, states: SharePartitionStates) -> CoordinatorRecord:
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(states.initializing),
        initialized_topics=_topics(states.initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in states.deleting.items()],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _topics(states: TopicStates) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=found.name, partitions=sorted(found.partitions))
        for topic_id, found in states.items()
    ]


def removed_member(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones in this order, because a record is deleted only after the records that depend on it."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of a group without members."""
    assert group.is_empty
    group_id = group.group_id
    return [
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]


# -- replay -----------------------------------------------------------------------------------------------------------


def share_group_id(key: TopLevel) -> str:
    assert isinstance(key, SHARE_KEYS)
    return key.group_id


def replay_share(group: ShareGroup | None, record: CoordinatorRecord) -> ShareGroup | None:
    """Replay a record. Return the group after it, None if there is none."""
    key, value = record.key, record.value
    assert isinstance(key, SHARE_KEYS)
    if group is None:
        if value is None:
            # The log no longer has the beginning of the group.
            return None
        group = ShareGroup(key.group_id)
    if isinstance(key, ShareGroupCurrentMemberAssignmentKey):
        member = group.members.get(key.member_id)
        if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
            group.update_member(_with_assignment(member or ShareMember(key.member_id), value))
        elif member is not None:
            group.update_member(member._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NO_PARTITIONS))
    elif isinstance(key, ShareGroupMemberMetadataKey):
        if isinstance(value, ShareGroupMemberMetadataValue):
            group.update_member(_with_metadata(group.members.get(key.member_id) or ShareMember(key.member_id), value))
        else:
            group.remove_member(key.member_id)
    elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
        target = None
        if isinstance(value, ShareGroupTargetAssignmentMemberValue):
            target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        group.set_target(key.member_id, target)
    elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
        if isinstance(value, ShareGroupTargetAssignmentMetadataValue):
            group.set_target_epoch(value.assignment_epoch, value.assignment_timestamp)
        else:
            group.set_target_epoch(-1, 0)
    elif isinstance(key, ShareGroupMetadataKey):
        if not isinstance(value, ShareGroupMetadataValue):
            return None
        group.set_epoch(value.epoch, value.metadata_hash)
    else:
        states = None
        if isinstance(value, ShareGroupStatePartitionMetadataValue):
            states = SharePartitionStates(
                _states(value.initializing_topics),
                _states(value.initialized_topics),
                {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
            )
        group.set_states(states)
    return group


def _with_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue) -> ShareMember:
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def _with_assignment(member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
    )


def _states(topics: Iterable[TopicPartitionsInfo]) -> TopicStates:
    return {topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics}
