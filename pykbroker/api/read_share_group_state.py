"""ReadShareGroupState, version 0. KIP-932.

The leader of a share partition sends it when it loads the share partition. Leaders of earlier epochs are fenced from
then on.
"""

from __future__ import annotations

from pykbroker.coordinator.share.service import AnswersByPartition, refused
from pykbroker.coordinator.share.shard import StateOutcome
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


def handle(ctx: BrokerContext, request: ReadShareGroupStateRequest) -> Later[ReadShareGroupStateResponse]:
    asked = [
        (topic.topic_id, each.partition, each.leader_epoch) for topic in request.topics for each in topic.partitions
    ]
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(refused(asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return ReadShareGroupStateResponse()
    return then(ctx.services.share_coordinator.read(request.group_id, asked), _response)


def _response(answers: AnswersByPartition) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(
                topic_id=topic_id, partitions=[_result(index, answer) for index, answer in partitions.items()]
            )
            for topic_id, partitions in answers.items()
        ]
    )


def _result(index: int, answer: StateOutcome) -> PartitionResult:
    result = PartitionResult(partition=index, error_code=answer.code, error_message=answer.message)
    if (state := answer.state) is not None:
        result.state_epoch = state.state_epoch
        result.start_offset = state.start_offset
        result.state_batches = [
            StateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ]
    return result


HANDLERS = Handlers(handle)
