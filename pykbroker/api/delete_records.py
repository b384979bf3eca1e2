"""DeleteRecords, versions 0-2. KIP-107: move the log start offset up; -1 stands for the high watermark."""

from __future__ import annotations

from pykbroker.coordinator.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.serving.context import BrokerContext
from pykbroker.serving.log_opening import when_open
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

INVALID_LOW_WATERMARK = -1


def handle(ctx: BrokerContext, request: DeleteRecordsRequest) -> Later[DeleteRecordsResponse]:
    # A partition that stands there twice is asked once, for its last offset; a topic without partitions is not
    # answered.
    offsets = {
        (topic.name, asked.partition_index): asked.offset for topic in request.topics for asked in topic.partitions
    }
    return when_open(ctx, offsets, lambda: _delete(ctx, offsets))


def _delete(ctx: BrokerContext, offsets: dict[tuple[str, int], int]) -> DeleteRecordsResponse:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for (name, index), offset in offsets.items():
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK)
        topics.setdefault(name, DeleteRecordsTopicResult(name=name)).partitions.append(result)
        try:
            if not ctx.authorize(Operation.DELETE, Resource.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            result.low_watermark = ctx.services.replicas.delete_records(name, index, offset)
        except KafkaError as error:
            result.error_code = error.code
    return DeleteRecordsResponse(topics=list(topics.values()))
