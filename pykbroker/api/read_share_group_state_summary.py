"""ReadShareGroupStateSummary, versions 0-1. KIP-932; KIP-1226 (version 1 has the count of delivered records).

A share group's coordinator sends it to describe the group's offsets. State that does not exist has start offset -1.
"""

from __future__ import annotations

from pykbroker.coordinator.share.service import AnswersByPartition, refused
from pykbroker.coordinator.share.shard import StateOutcome
from pykbroker.coordinator.share.share_state import UNKNOWN_COUNT
from pykbroker.coordinator.share.state_batches import NO_START
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)


def handle(ctx: BrokerContext, request: ReadShareGroupStateSummaryRequest) -> Later[ReadShareGroupStateSummaryResponse]:
    asked = [
        (topic.topic_id, each.partition, each.leader_epoch) for topic in request.topics for each in topic.partitions
    ]
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(refused(asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return ReadShareGroupStateSummaryResponse()
    return then(ctx.services.share_coordinator.read_summary(request.group_id, asked), _response)


def _response(answers: AnswersByPartition) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(
                topic_id=topic_id, partitions=[_result(index, answer) for index, answer in partitions.items()]
            )
            for topic_id, partitions in answers.items()
        ]
    )


def _result(index: int, answer: StateOutcome) -> PartitionResult:
    if answer.code:
        return PartitionResult(partition=index, error_code=answer.code, error_message=answer.message)
    state = answer.state
    if state is None:
        return PartitionResult(partition=index, start_offset=NO_START, delivery_complete_count=UNKNOWN_COUNT)
    return PartitionResult(
        partition=index,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )


HANDLERS = Handlers(handle)
