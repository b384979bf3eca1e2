"""ElectLeaders, versions 0-2, on the active controller: preferred and unclean elections. KIP-183, KIP-460."""

from __future__ import annotations

import asyncio

from pykbroker.controller.elections import elect_leaders
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving.context import ControllerContext
from pykbroker.serving.on_controller import immediately, respond
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


def handle(ctx: ControllerContext, request: ElectLeadersRequest) -> asyncio.Future[ElectLeadersResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(_refused(ctx, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    if request.topic_partitions is not None and not request.topic_partitions:
        return immediately(ElectLeadersResponse())
    return respond(
        ctx,
        ctx.services.controller.submit("ElectLeaders", lambda state, now_ms: elect_leaders(state, request)),
        lambda response: response,
        lambda error: _refused(ctx, request, error),
    )


def _refused(ctx: ControllerContext, request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    # Version 0 has no error for the whole.
    return ElectLeadersResponse(
        error_code=error.code if ctx.api_version >= 1 else ErrorCode.NONE, replica_election_results=results
    )
