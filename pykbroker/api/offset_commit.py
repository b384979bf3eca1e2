"""OffsetCommit, versions 2-10. KIP-320 (leader epoch), KIP-345 (static members), KIP-848 (topic ids from version 10).

It is for members of classic and consumer groups (the latter from version 9), and for consumers that assign their
partitions themselves; up to version 4 it has a retention time. Offsets are not compared with the log, as in Apache
Kafka.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_read_topic
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM = 10


def handle(ctx: BrokerContext, request: OffsetCommitRequest) -> Later[OffsetCommitResponse]:
    if not may(ctx, Operation.READ, request.group_id):
        return OffsetCommitResponse(
            topics=[_refuse(topic, ErrorCode.GROUP_AUTHORIZATION_FAILED) for topic in request.topics]
        )
    image = ctx.services.metadata.image.topics
    by_id = ctx.api_version >= _TOPIC_IDS_FROM
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.by_id.get(topic.topic_id) if by_id else image.by_name.get(topic.name)
        if known is None and by_id:
            refused.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not may_read_topic(ctx, topic.name if known is None else known.name):
            refused.append(_refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif known is None:
            refused.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            there = [asked for asked in topic.partitions if asked.partition_index in known.partitions]
            if len(there) < len(topic.partitions):
                missing = OffsetCommitRequestTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[asked for asked in topic.partitions if asked.partition_index not in known.partitions],
                )
                refused.append(_refuse(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            if there:
                accepted.append(OffsetCommitRequestTopic(name=known.name, topic_id=known.id, partitions=there))
    if not accepted:
        return OffsetCommitResponse(topics=refused)
    answer = ctx.services.groups.commit_offsets(request, accepted, ctx.api_version)
    return then(answer, lambda response: _merge(refused, response)) if refused else answer


def _refuse(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ],
    )


def _merge(refused: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Put the refused topics first; each topic is in the response once."""
    merged = list(refused)
    # The first refusal counts, because a topic may be refused several times.
    by_id = {other.topic_id: other for other in reversed(refused)}
    by_name = {other.name: other for other in reversed(refused) if other.name}
    order = {id(other): position for position, other in enumerate(refused)}
    for topic in response.topics:
        same = [other for other in (by_id.get(topic.topic_id), by_name.get(topic.name)) if other is not None]
        if same:
            min(same, key=lambda other: order[id(other)]).partitions += topic.partitions
        else:
            merged.append(topic)
    return OffsetCommitResponse(topics=merged)


HANDLERS = Handlers(handle)
