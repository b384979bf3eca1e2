"""Operations of share groups on a shard: heartbeats, answers of share coordinators, descriptions, deleted topics.

Responsible for finding the group, and for making a new one. Pure, as the operations of shard.py: each function takes
the shard, what came in, its token and the time, and returns a Result. It raises KafkaError if it is refused as a whole.
Not responsible for what a group decides (share_step.py), nor for offsets and deletions (share_offsets.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_member import JOIN_EPOCH, LEAVE_EPOCH, SharedPartitions, ShareMember
from pykbroker.coordinator.group.share.share_records import states_record
from pykbroker.coordinator.group.share.share_states import TopicIdPartition
from pykbroker.coordinator.group.share.share_step import ShareClient, ShareStep
from pykbroker.coordinator.group.share.waiting_joins import forget_waiting
from pykbroker.coordinator.group.topics import GroupTopics
from pykbroker.coordinator.result import Result, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages import share_group_describe as described
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard

#: The one assignor, as ShareGroupDescribe shows it.
ASSIGNOR: Final = "simple"


def share_group(shard: GroupShard, group_id: str) -> ShareGroup:
    """Return the share group with this id. Raises KafkaError."""
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group.",
    )


def new_or_known_group(shard: GroupShard, group_id: str) -> ShareGroup:
    """Return the share group with this id, or a new one if no group has it. Raises KafkaError."""
    return share_group(shard, group_id) if group_id in shard.groups else ShareGroup(group_id)


def share_heartbeat(
    shard: GroupShard, request: ShareGroupHeartbeatRequest, client: ShareClient, token: Token, now_ms: int
) -> Result:
    group_id = request.group_id
    if request.member_epoch == JOIN_EPOCH:
        group = new_or_known_group(shard, group_id)
    elif request.member_epoch != LEAVE_EPOCH and group_id not in shard.groups:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    else:
        group = share_group(shard, group_id)
    result = Result()
    step = ShareStep(group, shard.settings, shard.topics, now_ms, result)
    if request.member_epoch == LEAVE_EPOCH:
        step.leave(request, token)
    else:
        step.heartbeat(request, client, token)
    if group_id not in shard.groups:
        shard.await_record(group, result)
    return result


def forget_join(shard: GroupShard, group_id: str, member_id: str, token: Token) -> Result:
    """Let a request of a join no longer wait, because its connection has ended."""
    result = Result()
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup) and forget_waiting(group, member_id, token, result):
        result.reply(token, ShareGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    return result


def states_answered(
    shard: GroupShard,
    group_id: str,
    answers: Mapping[TopicIdPartition, ErrorCode],
    token: Token,
    now_ms: int,
    *,
    asked_by_member: bool,
) -> Result:
    """Take the answers of share coordinators to the initialisation of these share partitions, which followed a
    heartbeat or an administrator's alteration. The answer is None."""
    result = Result()
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        ShareStep(group, shard.settings, shard.topics, now_ms, result).states_answered(
            answers, asked_by_member=asked_by_member
        )
    result.reply(token, None)
    return result


def share_topics_deleted(shard: GroupShard, topic_ids: Collection[bytes], now_ms: int) -> Result:
    """Forget the share partitions of topics that the metadata no longer has. Share coordinators delete their states by
    themselves."""
    result = Result()
    result.atomic = False
    for group in shard.groups.values():
        if isinstance(group, ShareGroup) and group.states is not None:
            after = group.states.without_topics(topic_ids)
            if after != group.states:
                result.records.append(states_record(group.group_id, after))
    return result


# -- descriptions -----------------------------------------------------------------------------------------------------


def describe_share_groups(shard: GroupShard, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
    result = Result()
    result.reply(token, [_describe(shard, group_id) for group_id in group_ids])
    return result


def _describe(shard: GroupShard, group_id: str) -> described.DescribedGroup:
    try:
        group = share_group(shard, group_id)
    except KafkaError as error:
        return described.DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_describe_member(member, shard.topics) for member in group.members.values()],
    )


def _describe_member(member: ShareMember, topics: GroupTopics) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=_assignment(member.assigned, topics),
    )


def _assignment(partitions: SharedPartitions, topics: GroupTopics) -> described.Assignment:
    """Return the partitions, without topics that are gone."""
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )


def initialized_partitions(shard: GroupShard, group_id: str, token: Token, now_ms: int) -> Result:
    """The answer is the list of share partitions that have a state, also none if there is no such group."""
    group = shard.groups.get(group_id)
    states = group.known_states if isinstance(group, ShareGroup) else None
    found: list[TopicIdPartition] = []
    if states is not None:
        found = [(t, partition) for t, topic in states.initialized.items() for partition in sorted(topic.partitions)]
    result = Result()
    result.reply(token, found)
    return result
