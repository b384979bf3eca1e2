"""Encodes the state of consumer groups (KIP-848) as records, and decodes them. The records are those of Apache Kafka
4.3.1.

Responsible for building each record and for reading values into state. All are of version 0. Not responsible for their
order (the step that decides sets it), nor for bytes (records.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import (
    AssignedPartitions,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    TargetAssignment,
)
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_wire.stored.group.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from pykbroker_wire.stored.group.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
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
    TopicPartition,
)
from pykbroker_wire.stored.group.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

logger = logging.getLogger(__name__)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's identity and subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
        ),
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of the record in which releases before 4.1 kept the topics of a group."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def target_record(group_id: str, member_id: str, target: TargetAssignment) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's partitions, and of the partitions that it still has to give up."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.revoking),
    )
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value
    )


def _topic_partitions(assigned: AssignedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=(numbers := sorted(partitions)),
            assignment_epochs=[partitions[number] for number in numbers],
        )
        for topic_id, partitions in assigned.items()
    ]


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.metadata_offset, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def removed_member(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones in this order, because a record is deleted only after the records that depend on it."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def group_tombstones(group: ConsumerGroup, renamed: tuple[str, str] | None = None) -> list[CoordinatorRecord]:
    """Return the tombstones of the whole group. `renamed` is the (old, new) id of a member whose old records are
    deleted already."""
    group_id = group.group_id
    members: Iterable[str] = list(group.members)
    if renamed is not None:
        members = [renamed[1] if member_id == renamed[0] else member_id for member_id in members]
    return [
        *(current_tombstone(group_id, member_id) for member_id in members),
        *(target_tombstone(group_id, member_id) for member_id in members),
        target_epoch_tombstone(group_id),
        *(member_tombstone(group_id, member_id) for member_id in members),
        *(regex_tombstone(group_id, regex) for regex in group.subscriptions.resolved),
        partition_metadata_tombstone(group_id),
        epoch_tombstone(group_id),
    ]


def whole_group(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return all records of a group that was a classic group."""
    group_id = group.group_id
    members = group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, member_id, group.target[member_id]) for member_id in group.members),
        target_epoch_record(group_id, group.target_epoch, group.target_timestamp_ms),
        *(current_record(group_id, member) for member in members),
    ]


# -- decoding ---------------------------------------------------------------------------------------------------------


def with_metadata(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        ),
    )


def with_assignment(
    group_id: str, member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_assigned(group_id, value.assigned_partitions, value.member_epoch),
        revoking=_assigned(group_id, value.partitions_pending_revocation, value.member_epoch),
    )


def _assigned(group_id: str, topics: list[TopicPartitions], epoch: int) -> AssignedPartitions:
    assigned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is not None and len(epochs) == len(topic.partitions):
            assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
            continue
        if epochs is not None:
            logger.error(
                "Group %s: a stored assignment has %d epochs for %d partitions of topic %s, so its epochs are not used",
                group_id,
                len(epochs),
                len(topic.partitions),
                topic.topic_id.hex(),
            )
        # Releases before 4.3 wrote no epochs.
        assigned[topic.topic_id] = dict.fromkeys(topic.partitions, max(epoch, 0))
    return assigned


def without_assignment(member: ConsumerMember) -> ConsumerMember:
    return member._replace(epoch=-1, previous_epoch=-1, assigned={}, revoking={})


def read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> TargetAssignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def read_regex(value: ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
