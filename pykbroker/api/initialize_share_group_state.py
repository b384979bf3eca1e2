"""InitializeShareGroupState, version 0. KIP-932.

A share group's coordinator sends it before the group may read a partition, and when its start offset is changed.
"""

from __future__ import annotations

from pykbroker.coordinator.share.service import AnswersByPartition, refused
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


def handle(ctx: BrokerContext, request: InitializeShareGroupStateRequest) -> Later[InitializeShareGroupStateResponse]:
    asked = [
        (topic.topic_id, each.partition, (each.state_epoch, each.start_offset))
        for topic in request.topics
        for each in topic.partitions
    ]
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(refused(asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not request.group_id:
        return InitializeShareGroupStateResponse()
    return then(ctx.services.share_coordinator.initialize(request.group_id, asked), _response)


def _response(answers: AnswersByPartition) -> InitializeShareGroupStateResponse:
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(
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
