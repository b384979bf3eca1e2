"""AlterPartition, versions 2-3, on controller listeners: a leader's new ISR. KIP-497, KIP-704, KIP-903."""

from __future__ import annotations

import asyncio

from pykbroker.controller.alter_partition import alter_partition
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


def handle(ctx: ControllerContext, request: AlterPartitionRequest) -> asyncio.Future[AlterPartitionResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    version = ctx.api_version
    return respond(
        ctx,
        ctx.services.controller.submit(
            "AlterPartition", lambda state, now_ms: alter_partition(state, request, version)
        ),
        lambda response: response,
        lambda error: AlterPartitionResponse(error_code=error.code),
    )


HANDLERS = Handlers(handle)
