"""What a member of a classic group is answered when it joins and when it syncs.

Responsible for the values alone. Not responsible for when they are sent (classic_step.py, rebalance.py).
"""

from __future__ import annotations

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState, Member
from pykbroker_wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from pykbroker_wire.messages.sync_group import SyncGroupResponse


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """What a member hears at the end of the join phase; the leader also hears of all others."""
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
