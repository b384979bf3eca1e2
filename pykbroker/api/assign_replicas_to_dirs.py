"""AssignReplicasToDirs, version 0, on controller listeners: the log directory of a replica. KIP-858."""

from __future__ import annotations

import asyncio

from pykbroker.controller.alter_partition import assign_replicas_to_dirs
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


def handle(
    ctx: ControllerContext, request: AssignReplicasToDirsRequest
) -> asyncio.Future[AssignReplicasToDirsResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return respond(
        ctx,
        ctx.services.controller.submit(
            "AssignReplicasToDirs", lambda state, now_ms: assign_replicas_to_dirs(state, request)
        ),
        lambda response: response,
        lambda error: AssignReplicasToDirsResponse(error_code=error.code),
    )


HANDLERS = Handlers(handle)
