"""ListPartitionReassignments, version 0, on the active controller. KIP-455."""

from __future__ import annotations

import asyncio

from pykbroker.controller.reassignment import list_reassignments
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving.context import ControllerContext
from pykbroker.serving.on_controller import immediately, respond
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    ctx: ControllerContext, request: ListPartitionReassignmentsRequest
) -> asyncio.Future[ListPartitionReassignmentsResponse]:
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(_refused(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    if request.topics is not None and not request.topics:
        return immediately(ListPartitionReassignmentsResponse(error_message=None))
    return respond(
        ctx,
        ctx.services.controller.read("ListPartitionReassignments", lambda state: list_reassignments(state, request)),
        lambda response: response,
        _refused,
    )


def _refused(error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
