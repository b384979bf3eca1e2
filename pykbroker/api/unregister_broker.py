"""UnregisterBroker, version 0, on the active controller: forget a broker that will not come back. KIP-500.

Not in TABLE yet.
"""

from __future__ import annotations

import asyncio

from pykbroker.api.context import RequestContext
from pykbroker.api.on_controller import controller_of, immediately, respond
from pykbroker.controller.brokers import unregister_broker
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(ctx: RequestContext, request: UnregisterBrokerRequest) -> asyncio.Future[UnregisterBrokerResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(UnregisterBrokerResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return respond(
        ctx,
        controller_of(ctx).submit(
            "UnregisterBroker", lambda state, now_ms: unregister_broker(state, request.broker_id)
        ),
        lambda _: UnregisterBrokerResponse(),
        lambda error: UnregisterBrokerResponse(error_code=error.code),
    )
