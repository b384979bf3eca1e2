"""OffsetDelete, version 0. KIP-496.

It deletes offsets of topics that no member of the group is subscribed to.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_read_topic
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(ctx: BrokerContext, request: OffsetDeleteRequest) -> Later[OffsetDeleteResponse]:
    if not may(ctx, Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = ctx.services.metadata.image.topics
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    accepted: list[OffsetDeleteRequestTopic] = []

    def refuse(topic: str, partitions: list[OffsetDeleteRequestPartition], code: ErrorCode) -> None:
        answer = refused.setdefault(topic, OffsetDeleteResponseTopic(name=topic))
        answer.partitions += (
            OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
            for asked in partitions
        )

    for topic in request.topics:
        known = image.by_name.get(topic.name)
        if not may_read_topic(ctx, topic.name):
            refuse(topic.name, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif known is None:
            refuse(topic.name, topic.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            there = [asked for asked in topic.partitions if asked.partition_index in known.partitions]
            missing = [asked for asked in topic.partitions if asked.partition_index not in known.partitions]
            if missing:
                refuse(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if there:
                accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
    # The group is asked even if no topic is left, because its own error comes before the errors of topics.
    answer = ctx.services.groups.delete_offsets(OffsetDeleteRequest(group_id=request.group_id, topics=accepted))
    return then(answer, lambda response: _merge(refused, response))


def _merge(refused: dict[str, OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    if response.error_code or not refused:
        return response
    merged = dict(refused)
    for topic in response.topics:
        if topic.name in merged:
            merged[topic.name].partitions += topic.partitions
        else:
            merged[topic.name] = topic
    return OffsetDeleteResponse(topics=list(merged.values()))


HANDLERS = Handlers(handle)
