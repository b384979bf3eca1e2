"""ElectLeaders, versions 0-2, on the active controller: preferred and unclean elections. KIP-183, KIP-460."""

from __future__ import annotations

import asyncio

from pykbroker.controller.elections import elect_leaders
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def handle(ctx: ControllerContext, request: ElectLeadersRequest) -> asyncio.Future[ElectLeadersResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    if request.topic_partitions is not None and not request.topic_partitions:
        return immediately(ElectLeadersResponse())
    return respond(
        ctx,
        ctx.services.controller.submit("ElectLeaders", lambda state, now_ms: elect_leaders(state, request)),
        lambda response: response,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: ElectLeadersRequest, version: int, code: ErrorCode, message: str | None = None
) -> ElectLeadersResponse:
    """Return the response to a request that failed as a whole."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    # Version 0 has no error for the whole request.
    return ElectLeadersResponse(error_code=code if version >= 1 else ErrorCode.NONE, replica_election_results=results)


HANDLERS = Handlers(handle, refused=refused)
