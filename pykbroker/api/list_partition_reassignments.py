"""ListPartitionReassignments, version 0, on the active controller. KIP-455."""

from __future__ import annotations

import asyncio

from pykbroker.controller.reassignment import list_reassignments
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    ctx: ControllerContext, request: ListPartitionReassignmentsRequest
) -> asyncio.Future[ListPartitionReassignmentsResponse]:
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    if request.topics is not None and not request.topics:
        return immediately(ListPartitionReassignmentsResponse(error_message=None))
    return respond(
        ctx,
        ctx.services.controller.read("ListPartitionReassignments", lambda state: list_reassignments(state, request)),
        lambda response: response,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: ListPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str | None = None
) -> ListPartitionReassignmentsResponse:
    """Return the response to a request that failed as a whole. It has the requested names, as in Apache Kafka."""
    topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=topics)


HANDLERS = Handlers(handle, refused=refused)
