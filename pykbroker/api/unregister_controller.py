"""UnregisterController, version 0, on the active controller: forget a controller that will not come back. KIP-1312.

It needs metadata.version 33 (4.4-IV2). A controller that still runs registers again.
"""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import unregister_controller
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse


def handle(
    ctx: ControllerContext, request: UnregisterControllerRequest
) -> asyncio.Future[UnregisterControllerResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    return respond(
        ctx,
        ctx.services.controller.submit(
            "UnregisterController", lambda state, now_ms: unregister_controller(state, request.controller_id)
        ),
        lambda done: UnregisterControllerResponse(),
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: UnregisterControllerRequest, version: int, code: ErrorCode, message: str | None = None
) -> UnregisterControllerResponse:
    """Return the response to a request that failed."""
    return UnregisterControllerResponse(error_code=code, error_message=message)


HANDLERS = Handlers(handle, refused=refused)
