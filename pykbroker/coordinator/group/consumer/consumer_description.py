"""A consumer group as ConsumerGroupDescribe shows it. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykbroker.coordinator.group.consumer.consumer_group import ConsumerGroup
from pykbroker.coordinator.group.consumer.consumer_member import NO_TARGET, ConsumerMember, TargetAssignment
from pykbroker.coordinator.group.contract import Group
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import consumer_group_describe as described

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe_consumer(
    group_id: str, group: Group | None, default_assignor: str, topics: GroupTopics
) -> described.DescribedGroup:
    if not isinstance(group, ConsumerGroup):
        return described.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=(
                f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
            ),
        )
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.subscriptions.preferred_assignor(default_assignor),
        members=[
            _describe_member(member, group.target.get(member.member_id, NO_TARGET), topics)
            for member in group.members.values()
        ],
    )


def _describe_member(member: ConsumerMember, target: TargetAssignment, topics: GroupTopics) -> described.Member:
    current: dict[bytes, list[int]] = {}
    for assigned in (member.assigned, member.revoking):
        for topic_id, partitions in assigned.items():
            current.setdefault(topic_id, []).extend(sorted(partitions))
    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(current, topics),
        target_assignment=_assignment(target, topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: GroupTopics) -> described.Assignment:
    """Return the partitions, without topics that are gone."""
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
