"""UnregisterBroker, version 0, on the active controller: forget a broker that will not come back. KIP-500, KIP-746."""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import unregister_broker
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(ctx: ControllerContext, request: UnregisterBrokerRequest) -> asyncio.Future[UnregisterBrokerResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))
    return respond(
        ctx,
        ctx.services.controller.submit(
            "UnregisterBroker", lambda state, now_ms: unregister_broker(state, request.broker_id)
        ),
        lambda done: UnregisterBrokerResponse(),
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: UnregisterBrokerRequest, version: int, code: ErrorCode, message: str | None = None
) -> UnregisterBrokerResponse:
    """Return the response to a request that failed."""
    return UnregisterBrokerResponse(error_code=code, error_message=message)


HANDLERS = Handlers(handle, refused=refused)
