"""What administrators see of groups: ListGroups, DescribeGroups, ConsumerGroupDescribe.

Responsible for turning groups into answers. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykbroker.coordinator.group.classic import ClassicGroup, State
from pykbroker.coordinator.group.consumer import NO_TARGET, ConsumerGroup, ConsumerMember, Target
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import consumer_group_describe as described
from pykbroker_wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pykbroker_wire.messages.list_groups import ListedGroup

#: DescribeGroups says so from this version on; before, a missing group is described as Dead.
_MISSING_GROUP_IS_ERROR_FROM: Final = 6

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def list_groups(
    groups: Iterable[ClassicGroup | ConsumerGroup], states: frozenset[str], types: frozenset[str]
) -> list[ListedGroup]:
    """Filters are lower case; an empty one lets everything through."""
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=group.kind,
        )
        for group in groups
        if (not types or group.kind in types) and (not states or group.state.value.lower() in states)
    ]


def describe_classic(
    group_id: str, group: ClassicGroup | None, is_consumer_group: bool, api_version: int
) -> DescribedGroup:
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if api_version >= _MISSING_GROUP_IS_ERROR_FROM:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = (
                f"Group {group_id} is not a classic group." if is_consumer_group else f"Group {group_id} not found."
            )
        return missing
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_consumer(
    group_id: str, group: ConsumerGroup | None, is_classic_group: bool, default_assignor: str, topics: GroupTopics
) -> described.DescribedGroup:
    if group is None:
        return described.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=(
                f"Group {group_id} is not a consumer group." if is_classic_group else f"Group {group_id} not found."
            ),
        )
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[
            _describe_member(member, group.target.get(member.member_id, NO_TARGET), topics)
            for member in group.members.values()
        ],
    )


def _describe_member(member: ConsumerMember, target: Target, topics: GroupTopics) -> described.Member:
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
    """Without topics that are gone."""
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
