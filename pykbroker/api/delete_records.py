"""DeleteRecords, versions 0-2. KIP-107: move the log start offset up; -1 stands for the high watermark."""

from __future__ import annotations

from pykbroker.api.context import RequestContext
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

INVALID_LOW_WATERMARK = -1


def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for topic in request.topics:
        allowed = ctx.authorize(Operation.DELETE, Resource.TOPIC, topic.name)
        results = topics.setdefault(topic.name, DeleteRecordsTopicResult(name=topic.name)).partitions
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=INVALID_LOW_WATERMARK)
            results.append(result)
            try:
                if not allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                result.low_watermark = ctx.broker.replicas.delete_records(topic.name, asked.partition_index, asked.offset)
            except KafkaError as error:
                result.error_code = error.code
    return DeleteRecordsResponse(topics=list(topics.values()))
