"""The answers to a member of a classic group that joins or syncs, and the group as DescribeGroups shows it.

Responsible for the values alone. Nothing is changed here. Not responsible for when they are sent (classic_step.py,
rebalance.py).
"""

from __future__ import annotations

from typing import Final

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker.coordinator.group.contract import Group
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pykbroker_wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pykbroker_wire.messages.sync_group import SyncGroupResponse

#: From this version of DescribeGroups on, a missing group is an error. Before, it is only described as Dead.
_MISSING_GROUP_IS_ERROR_FROM: Final = 6


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """Return a member's answer at the end of the join phase. The leader's answer lists all members."""
    members: list[JoinGroupResponseMember] = []
    if group.leader == member.member_id and group.state is not ClassicGroupState.STABLE:
        members = all_members(group)
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


def all_members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def assignment_of(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def describe_classic(group_id: str, group: Group | None, api_version: int) -> DescribedGroup:
    if not isinstance(group, ClassicGroup):
        missing = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
        if api_version >= _MISSING_GROUP_IS_ERROR_FROM:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = (
                f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
            )
        return missing
    stable = group.state is ClassicGroupState.STABLE
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
