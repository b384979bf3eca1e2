"""WriteShareGroupState, versions 0-1. KIP-932; KIP-1226 (version 1 has the count of delivered records).

The leader of a share partition sends it for acknowledgements and for locks that timed out. The answer comes when the
change is committed. A write of version 0 makes the count unknown.
"""

from __future__ import annotations

from pykbroker.coordinator.share.service import AnswersByPartition, refused
from pykbroker.coordinator.share.shard import StateWrite
from pykbroker.coordinator.share.state_batches import PersistedBatch
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


def handle(ctx: BrokerContext, request: WriteShareGroupStateRequest) -> Later[WriteShareGroupStateResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        named = [(topic.topic_id, each.partition, None) for topic in request.topics for each in topic.partitions]
        return _response(refused(named, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return WriteShareGroupStateResponse()
    asked = [(topic.topic_id, each.partition, _write(each)) for topic in request.topics for each in topic.partitions]
    return then(ctx.services.share_coordinator.write(request.group_id, asked), _response)


def _write(data: PartitionData) -> StateWrite:
    return StateWrite(
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        [
            PersistedBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in data.state_batches
        ],
    )


def _response(answers: AnswersByPartition) -> WriteShareGroupStateResponse:
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(
                topic_id=topic_id,
                partitions=[
                    PartitionResult(partition=index, error_code=answer.code, error_message=answer.message)
                    for index, answer in partitions.items()
                ],
            )
            for topic_id, partitions in answers.items()
        ]
    )


HANDLERS = Handlers(handle)
