"""DeleteRecords, versions 0-2. KIP-107: move the log start offset up; -1 stands for the high watermark.

The response waits until every replica on a live broker has deleted the records, or for the request's timeout.
"""

from __future__ import annotations

import asyncio

from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.log_opening import when_open
from pykbroker.dispatch.rows import Handlers
from pykbroker.replica.low_watermark import INVALID_LOW_WATERMARK, DelayedDeletes, DeletedRecords
from pykbroker.replica.partition import Partition
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(ctx: BrokerContext, request: DeleteRecordsRequest) -> Later[DeleteRecordsResponse]:
    # For a partition that is in the request twice, the last offset counts; a topic without partitions is left out.
    offsets = {
        (topic.name, asked.partition_index): asked.offset for topic in request.topics for asked in topic.partitions
    }
    return when_open(ctx, offsets, lambda: _delete(ctx, offsets, request.timeout_ms), in_order(ctx))


def _delete(ctx: BrokerContext, offsets: dict[tuple[str, int], int], timeout_ms: int) -> Later[DeleteRecordsResponse]:
    topics: dict[str, DeleteRecordsTopicResult] = {}
    # As in Kafka, a response that waits for one partition waits for all partitions that were not refused.
    deletions: list[tuple[Partition, int, int]] = []
    results: list[DeleteRecordsPartitionResult] = []
    waits = False
    for (name, index), offset in offsets.items():
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=INVALID_LOW_WATERMARK)
        topics.setdefault(name, DeleteRecordsTopicResult(name=name)).partitions.append(result)
        try:
            if not ctx.authorize(Operation.DELETE, Resource.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition, target, result.low_watermark = ctx.services.replicas.delete_records(name, index, offset)
            deletions.append((partition, target, result.low_watermark))
            results.append(result)
            waits = waits or result.low_watermark < target
        except KafkaError as error:
            result.error_code = error.code
    response = DeleteRecordsResponse(topics=list(topics.values()))
    if not waits:
        return response
    later: asyncio.Future[DeleteRecordsResponse] = ctx.services.runtime.loop.create_future()

    def answer(deleted: list[DeletedRecords]) -> None:
        for result, (code, low_watermark) in zip(results, deleted, strict=True):
            result.error_code = code
            result.low_watermark = low_watermark
        # The client may have left in this turn of the loop. Then `cancel` runs only in the next turn.
        if not later.done():
            later.set_result(response)

    delayed = DelayedDeletes(ctx.services.runtime.loop, deletions, timeout_ms, answer)
    later.add_done_callback(lambda future: delayed.cancel() if future.cancelled() else None)
    return later


HANDLERS = Handlers(handle)
