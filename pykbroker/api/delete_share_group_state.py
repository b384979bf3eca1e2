"""DeleteShareGroupState, version 0. KIP-932.

A share group's coordinator sends it when the group or its offsets are deleted. Unknown state counts as deleted.
"""

from __future__ import annotations

from pykbroker.coordinator.share.service import AnswersByPartition, refused
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


def handle(ctx: BrokerContext, request: DeleteShareGroupStateRequest) -> Later[DeleteShareGroupStateResponse]:
    asked = [(topic.topic_id, each.partition, None) for topic in request.topics for each in topic.partitions]
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return _response(refused(asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return DeleteShareGroupStateResponse()
    return then(ctx.services.share_coordinator.delete(request.group_id, asked), _response)


def _response(answers: AnswersByPartition) -> DeleteShareGroupStateResponse:
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(
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
