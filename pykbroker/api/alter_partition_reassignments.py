"""AlterPartitionReassignments, versions 0-1, on the active controller: moves of replicas. KIP-455, KIP-860."""

from __future__ import annotations

import asyncio

from pykbroker.controller.reassignment import alter_reassignments
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    ctx: ControllerContext, request: AlterPartitionReassignmentsRequest
) -> asyncio.Future[AlterPartitionReassignmentsResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    if not request.topics:
        return immediately(AlterPartitionReassignmentsResponse())
    begins = any(partition.replicas is not None for topic in request.topics for partition in topic.partitions)
    return respond(
        ctx,
        ctx.services.controller.submit(
            "AlterPartitionReassignments", lambda state, now_ms: alter_reassignments(state, request), takes_room=begins
        ),
        lambda response: response,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: AlterPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str | None = None
) -> AlterPartitionReassignmentsResponse:
    """Return the response to a request that failed as a whole. It has the requested names, as in Apache Kafka."""
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=code, error_message=message
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)


HANDLERS = Handlers(handle, refused=refused)
