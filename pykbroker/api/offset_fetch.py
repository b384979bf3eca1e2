"""OffsetFetch, versions 1-10. KIP-447 (require stable), KIP-709 (several groups, from 8), KIP-848 (topic ids, from 10).

It fetches named partitions, or all partitions of a group (null topics, from version 2). Undecided transactional offsets
get UNSTABLE_OFFSET_COMMIT if the request requires stable offsets. Members of consumer groups send their epoch (from
version 9).
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, gather, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykbroker_wire.primitives import ZERO_UUID

_ERROR_OF_GROUP_FROM = 2
_SEVERAL_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10


def handle(ctx: BrokerContext, request: OffsetFetchRequest) -> Later[OffsetFetchResponse]:
    stable = request.require_stable
    if ctx.api_version >= _SEVERAL_GROUPS_FROM:
        parts = [_fetch(ctx, group, stable) for group in request.groups]
        return then(gather(parts), lambda answers: OffsetFetchResponse(groups=answers))
    topics = request.topics
    asked = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )
    version = ctx.api_version
    return then(_fetch(ctx, asked, stable), lambda answer: _of_one_group(asked, answer, version))


def _fetch(ctx: BrokerContext, group: OffsetFetchRequestGroup, stable: bool) -> Later[OffsetFetchResponseGroup]:
    if not may(ctx, Operation.DESCRIBE, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member_id, member_epoch = group.member_id, group.member_epoch
    if group.topics is None:
        everything = ctx.services.groups.fetch_offsets(
            group.group_id, None, require_stable=stable, member_id=member_id, member_epoch=member_epoch
        )
        return then(everything, lambda answer: _visible(ctx, answer))
    asked: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    for topic in group.topics:
        name = topic.name
        if ctx.api_version >= _TOPIC_IDS_FROM:
            known = ctx.services.metadata.image.topics.by_id.get(topic.topic_id)
            if known is None:
                refused.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            name = known.name
        if not ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name):
            refused.append(_refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        asked.append(
            OffsetFetchRequestTopics(name=name, topic_id=topic.topic_id, partition_indexes=topic.partition_indexes)
        )
    found = ctx.services.groups.fetch_offsets(
        group.group_id, asked, require_stable=stable, member_id=member_id, member_epoch=member_epoch
    )
    return then(found, lambda answer: _with(answer, refused)) if refused else found


def _refuse(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, error_code=code)
            for partition in topic.partition_indexes
        ],
    )


def _with(answer: OffsetFetchResponseGroup, refused: list[OffsetFetchResponseTopics]) -> OffsetFetchResponseGroup:
    if answer.error_code == ErrorCode.NONE:
        answer.topics += refused
    return answer


def _visible(ctx: BrokerContext, answer: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
    """Keep the topics that the client may describe. In versions with topic ids, a topic must also have an id."""
    topics = [topic for topic in answer.topics if ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)]
    if ctx.api_version >= _TOPIC_IDS_FROM:
        image = ctx.services.metadata.image.topics
        for topic in topics:
            if topic.topic_id == ZERO_UUID:
                known = image.by_name.get(topic.name)
                topic.topic_id = ZERO_UUID if known is None else known.id
        topics = [topic for topic in topics if topic.topic_id != ZERO_UUID]
    answer.topics = topics
    return answer


def _of_one_group(
    asked: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    topics = answer.topics
    if answer.error_code and version < _ERROR_OF_GROUP_FROM:
        topics = [_refuse(topic, ErrorCode(answer.error_code)) for topic in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=found.partition_index,
                        committed_offset=found.committed_offset,
                        committed_leader_epoch=found.committed_leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error_code,
                    )
                    for found in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


HANDLERS = Handlers(handle)
