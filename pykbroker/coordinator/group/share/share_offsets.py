"""Operations of administrators on share groups: alter and delete offsets, delete groups.

The offsets of a share group are the start offsets of its share partitions, which share coordinators keep. So each of
these operations has two halves, and between them share coordinators are asked. The first half checks the group, writes
what is to happen and answers with what to ask. The second half takes their answers. If there is no second half, because
this coordinator ends, the records of the first half remain. Then the same operation may be repeated.

Responsible for both halves, as pure operations on a shard. The second half of an alteration is `states_answered`
(share_operations.py), and that of a deletion of groups is `GroupShard.delete_groups`. Not responsible for asking
(service.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.coordinator.group.share.share_group import ShareGroup
from pykbroker.coordinator.group.share.share_operations import new_or_known_group, share_group
from pykbroker.coordinator.group.share.share_partition_states import NamedPartitions, SharePartitionStates
from pykbroker.coordinator.group.share.share_records import epoch_record, states_record, target_epoch_record
from pykbroker.coordinator.group.share.share_states import ShareStart, TopicIdPartition
from pykbroker.coordinator.result import Result, Token
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from pykbroker.coordinator.group.shard import GroupShard

_NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OffsetsAlteration(NamedTuple):
    """The first half of an alteration: what to ask of share coordinators, and the response if they agree."""

    starts: Sequence[ShareStart]
    response: AlterShareGroupOffsetsResponse


class OffsetsDeletion(NamedTuple):
    """The first half of a deletion of offsets: what to ask of share coordinators, and the topics that failed."""

    partitions: Sequence[TopicIdPartition]
    failed: list[DeleteShareGroupOffsetsResponseTopic]


class GroupsDeletion(NamedTuple):
    """The first half of a deletion of groups: what to ask of share coordinators, by group id, and the groups that may
    not be deleted."""

    partitions: dict[str, Sequence[TopicIdPartition]]
    refused: dict[str, ErrorCode]


def begin_alteration(shard: GroupShard, request: AlterShareGroupOffsetsRequest, token: Token, now_ms: int) -> Result:
    """Set new start offsets. A group that does not exist comes into being. Raises KafkaError if it has members.

    The group epoch rises, because it becomes the state epoch of the new states. A leader that has loaded the states of
    an earlier alteration is fenced by that. In Apache Kafka both have the same state epoch. If a member that has left
    keeps its share session, its leader overwrites the second alteration there."""
    group = new_or_known_group(shard, request.group_id)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    is_known = group.group_id in shard.groups
    epoch = group.epoch + 1 if is_known else group.epoch
    starts: list[ShareStart] = []
    begun: dict[bytes, NamedPartitions] = {}
    response = AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        topic_id = shard.topics.id_of(topic.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        response.responses.append(answer)
        count = 0
        if topic_id is not None:
            answer.topic_id = topic_id
            count = shard.topics.partition_count(topic_id)
        found: set[int] = set()
        for asked in topic.partitions:
            partition = AlterShareGroupOffsetsResponsePartition(partition_index=asked.partition_index)
            answer.partitions.append(partition)
            if topic_id is None or not 0 <= asked.partition_index < count:
                partition.error_code = _NO_TOPIC
                partition.error_message = _NO_TOPIC.message
            elif asked.partition_index not in found:
                found.add(asked.partition_index)
                starts.append(ShareStart(topic_id, asked.partition_index, epoch, asked.start_offset))
        if topic_id is not None and found:
            begun[topic_id] = NamedPartitions(topic.topic_name, frozenset(found))
    result = Result()
    if begun:
        if is_known:
            result.records.append(epoch_record(group.group_id, epoch, group.metadata_hash))
            # Without a time the next member gets its target at once.
            result.records.append(target_epoch_record(group.group_id, epoch, 0))
        result.records.append(states_record(group.group_id, group.known_states.begin(begun)))
        group.initializing_since_ms.update(dict.fromkeys(begun, now_ms))
        if not is_known:
            shard.await_record(group, result)
    result.reply(token, OffsetsAlteration(starts, response))
    return result


def begin_offsets_deletion(
    shard: GroupShard, request: DeleteShareGroupOffsetsRequest, token: Token, now_ms: int
) -> Result:
    """Begin to delete the states of topics. Raises KafkaError if there is no such group, or if it has members."""
    group = share_group(shard, request.group_id)
    group.check_delete()
    partitions: list[TopicIdPartition] = []
    failed: list[DeleteShareGroupOffsetsResponseTopic] = []
    result = Result()
    states = group.states
    deleted: dict[bytes, str] = {}
    for topic in request.topics if states is not None else ():
        assert states is not None
        topic_id = shard.topics.id_of(topic.topic_name)
        if topic_id is None:
            failed.append(_failed(topic.topic_name, _NO_TOPIC.message))
        elif topic_id in deleted:
            # The request names the topic twice.
            continue
        elif topic_id in states.initialized:
            partitions += [(topic_id, partition) for partition in sorted(states.initialized_of(topic_id))]
            deleted[topic_id] = topic.topic_name
        elif topic_id in states.deleting:
            # An earlier deletion had no end.
            partitions += _all_partitions(shard, topic_id)
            deleted[topic_id] = topic.topic_name
        else:
            failed.append(_failed(topic.topic_name, "There is no offset information to delete."))
    if states is not None:
        after = states.delete(deleted)
        if after != states:
            result.records.append(states_record(group.group_id, after))
    result.reply(token, OffsetsDeletion(partitions, failed))
    return result


def _failed(topic_name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(topic_name=topic_name, error_code=_NO_TOPIC, error_message=message)


def _all_partitions(shard: GroupShard, topic_id: bytes) -> list[TopicIdPartition]:
    return [(topic_id, partition) for partition in range(shard.topics.partition_count(topic_id))]


def end_offsets_deletion(
    shard: GroupShard, group_id: str, topic_ids: Sequence[bytes], token: Token, now_ms: int
) -> Result:
    """Forget topics whose states share coordinators have deleted. The answer is None."""
    result = Result()
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.states is not None:
        after = group.states.deleted(topic_ids)
        if after != group.states:
            result.records.append(states_record(group_id, after))
    result.reply(token, None)
    return result


def begin_groups_deletion(shard: GroupShard, group_ids: Iterable[str], token: Token, now_ms: int) -> Result:
    """Begin to delete the share groups among these groups. Groups of other kinds are left out of the answer."""
    result = Result()
    result.atomic = False
    deletion = GroupsDeletion({}, {})
    for group_id in group_ids:
        group = shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            continue
        try:
            group.check_delete()
        except KafkaError as error:
            deletion.refused[group_id] = error.code
            continue
        if group.states is None:
            continue
        everything = group.states.everything()
        partitions = [(t, partition) for t, found in everything.items() for partition in sorted(found.partitions)]
        deleting = {topic_id: found.name for topic_id, found in everything.items()}
        for topic_id, name in group.states.deleting.items():
            # An earlier deletion had no end. Topics that are gone have no states.
            if topic_id not in everything and shard.topics.name_of(topic_id) is not None:
                partitions += _all_partitions(shard, topic_id)
                deleting[topic_id] = name
        after = SharePartitionStates(deleting=deleting)
        if after != group.states:
            result.records.append(states_record(group_id, after))
        if partitions:
            deletion.partitions[group_id] = partitions
    result.reply(token, deletion)
    return result
