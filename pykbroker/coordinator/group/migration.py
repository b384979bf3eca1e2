"""Classic groups become consumer groups and back, while their members stay (KIP-848, group.consumer.migration.policy).

Responsible for when that is allowed, and for building the group of the other kind with its records. Not responsible for
requests (consumer/consumer_heartbeat.py, mixed.py), nor for replay (shard.py).

A classic group becomes a consumer group when a member of the new protocol joins. Its members go on with JoinGroup,
SyncGroup and Heartbeat (mixed.py), because their subscriptions and assignments are those of the embedded protocol. A
consumer group becomes a classic group when the last member of the new protocol leaves and classic members stay.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.group.classic.classic_records import group_record, group_tombstone
from pykbroker.coordinator.group.classic.protocol_selection import CONSUMER, selected_protocol
from pykbroker.coordinator.group.classic.rebalance import Rebalance
from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    TargetAssignment,
)
from pykbroker.coordinator.group.consumer.consumer_records import group_tombstones, whole_group
from pykbroker.coordinator.group.contract import Group
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import CoordinatorRecord, Result
from pykbroker_wire.errors import DecodeError, ErrorCode, KafkaError
from pykbroker_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker_wire.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

logger = logging.getLogger(__name__)


# -- the embedded protocol --------------------------------------------------------------------------------------------


def _embedded_version(data: bytes) -> int:
    """Return the version to decode with, because later versions only append. Raises DecodeError."""
    if len(data) < 2:
        raise DecodeError("no version")
    version: int = struct.unpack_from(">h", data)[0]
    if version < 0:
        raise DecodeError(f"version {version}")
    return min(version, ConsumerProtocolSubscription.MAX_VERSION)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription. Raises DecodeError."""
    return ConsumerProtocolSubscription.decode(metadata, 2, _embedded_version(metadata))[0]


def _read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment.decode(assignment, 2, _embedded_version(assignment))[0]


def write_assignment(target: Iterable[tuple[bytes, Iterable[int]]], topics: GroupTopics, metadata: bytes) -> bytes:
    """Encode the assignment of a classic member, in the version of its own subscription. Raises DecodeError."""
    version = _embedded_version(metadata)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignmentTopicPartition(topic=name, partitions=sorted(partitions))
            for topic_id, partitions in target
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    return struct.pack(">h", version) + message.encode_bytes(version)


# -- upgrade ----------------------------------------------------------------------------------------------------------


def consumer_group_for(
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    topics: GroupTopics,
    settings: GroupSettings,
    result: Result,
) -> ConsumerGroup:
    """Return the consumer group for a ConsumerGroupHeartbeat: the existing group, or a new one if a member joins. The
    new group continues the classic group with this id, if there is one. Raises KafkaError."""
    if isinstance(group, ConsumerGroup):
        return group
    group_id = request.group_id
    if request.member_epoch != 0:
        if group is not None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        which = "Group" if request.member_epoch < 0 else "Consumer group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{which} {group_id} not found.")
    if group is None:
        return ConsumerGroup(group_id)
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group.is_empty:
        logger.info("Group %s: the empty classic group becomes a consumer group", group_id)
        result.records.append(group_tombstone(group_id))
        return ConsumerGroup(group_id)
    upgraded, records = _upgrade(group, topics, settings, result)
    result.records += records
    return upgraded


def _upgrade(
    group: ClassicGroup, topics: GroupTopics, settings: GroupSettings, result: Result
) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
    """Return the consumer group that `group` becomes, and its records. The soft state of `group` stays as it is (see
    `give_way`)."""
    group_id = group.group_id
    if not settings.migration.upgrades:
        raise _not_upgraded(group_id, "online upgrade is disabled")
    if group.protocol_type != CONSUMER:
        raise _not_upgraded(group_id, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.consumer_max_size:
        raise _not_upgraded(group_id, "the group size exceeds the consumer group maximum size")
    try:
        upgraded = _from_classic(group, topics)
    except DecodeError as error:
        logger.warning("Group %s cannot become a consumer group: %s", group_id, error)
        raise _not_upgraded(group_id, "the embedded consumer protocol is malformed") from None
    for member in upgraded.members.values():
        assert member.classic is not None
        result.set_timer(("session", group_id, member.member_id), member.classic.session_timeout_ms)
    logger.info("Group %s: the classic group becomes a consumer group", group_id)
    return upgraded, [group_tombstone(group_id), *whole_group(upgraded)]


def _not_upgraded(group_id: str, reason: str) -> KafkaError:
    logger.info("Group %s cannot become a consumer group: %s", group_id, reason)
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {reason}."
    )


def _from_classic(group: ClassicGroup, topics: GroupTopics) -> ConsumerGroup:
    upgraded = ConsumerGroup(group.group_id)
    upgraded.set_epoch(group.generation, 0)
    upgraded.set_target_epoch(group.generation, 0)
    # A group has no protocol yet in its first rebalance.
    protocol = group.protocol_name or selected_protocol(group.members.values())
    for member in group.members.values():
        target: dict[bytes, frozenset[int]] = {}
        if member.assignment:
            assignment = _read_assignment(member.assignment)
            if assignment.user_data:
                raise _not_upgraded(
                    group.group_id,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade",
                )
            for topic in assignment.assigned_partitions:
                topic_id = topics.id_of(topic.topic)
                if topic_id is not None:
                    target[topic_id] = frozenset(topic.partitions)
        subscription = read_subscription(member.metadata(protocol))
        upgraded.set_target(member.member_id, target)
        upgraded.update_member(
            ConsumerMember(
                member_id=member.member_id,
                epoch=group.generation,
                previous_epoch=group.generation,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=frozenset(subscription.topics),
                state=MemberState.STABLE,
                assigned={
                    topic_id: dict.fromkeys(sorted(partitions), group.generation)
                    for topic_id, partitions in target.items()
                },
                classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            )
        )
    upgraded.set_epoch(group.generation, topics.metadata_hash(upgraded.subscriptions.subscribers))
    return upgraded


# -- downgrade --------------------------------------------------------------------------------------------------------


def gives_way_to_classic(group: Group) -> bool:
    """Return True if a new classic group takes the group's id when a member joins with JoinGroup."""
    return isinstance(group, ConsumerGroup) and group.is_empty


def can_downgrade(
    group: ConsumerGroup, leaving: Sequence[ConsumerMember], settings: GroupSettings, *, joining: int = 0
) -> bool:
    """Return True if the members that stay can form a classic group. `joining` is the number of members that take the
    places of those that leave."""
    if not group.only_classic_without(leaving):
        return False
    staying = len(group.members) - len(leaving) + joining
    if staying <= 0:
        return False
    if not settings.migration.downgrades:
        logger.info("Group %s cannot become a classic group: online downgrade is disabled", group.group_id)
        return False
    if staying > settings.max_size:
        logger.info("Group %s cannot become a classic group: it has %d members", group.group_id, staying)
        return False
    return True


def to_classic(
    group: ConsumerGroup,
    topics: GroupTopics,
    settings: GroupSettings,
    now_ms: int,
    result: Result,
    *,
    leaving: Sequence[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
    rebalance: bool = True,
) -> ClassicGroup:
    """Return the classic group that `group` becomes, and add its records to `result`. `joining` replaces the holder of
    its instance id."""
    group_id = group.group_id
    replaced = None if joining is None else group.static_member(joining.instance_id)
    renamed = None if joining is None or replaced is None else (replaced.member_id, joining.member_id)
    try:
        classic = _classic_of(group, topics, now_ms, leaving, joining, replaced)
    except DecodeError as error:
        logger.warning("Group %s cannot become a classic group: %s", group_id, error)
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group_id}: {error}."
        ) from None
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    result.records += group_tombstones(group, renamed)
    result.records.append(group_record(classic, assignments))
    for member_id in group.members:
        for kind in ("session", "rebalance", "rejoin", "resync"):
            result.cancel_timer((kind, group_id, member_id))
    later = Rebalance(classic, settings, now_ms, result)
    later.expect_heartbeats()
    if rebalance:
        later.prepare(f"downgraded from epoch {group.epoch}")
    logger.info("Group %s: the consumer group becomes a classic group", group_id)
    return classic


def _classic_of(
    group: ConsumerGroup,
    topics: GroupTopics,
    now_ms: int,
    leaving: Sequence[ConsumerMember],
    joining: ConsumerMember | None,
    replaced: ConsumerMember | None,
) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, now_ms)
    gone = {member.member_id for member in leaving}
    if replaced is not None:
        gone.add(replaced.member_id)
    staying = [member for member in group.members.values() if member.member_id not in gone]
    if joining is not None:
        staying.append(joining)
    for member in staying:
        metadata = member.classic
        assert metadata is not None
        classic.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                metadata.session_timeout_ms,
                metadata.protocols,
            ),
            CONSUMER,
        )
    classic.continue_from(group.epoch)
    for member in staying:
        holder = replaced.member_id if replaced is not None and member is joining else member.member_id
        target: TargetAssignment = group.target.get(holder, {})
        written = classic.members[member.member_id]
        written.assignment = write_assignment(target.items(), topics, written.metadata(classic.protocol_name))
    return classic
