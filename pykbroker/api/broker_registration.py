"""BrokerRegistration, versions 0-4, on controller listeners. KIP-631, KIP-858, KIP-966."""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import register_broker
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


def handle(ctx: ControllerContext, request: BrokerRegistrationRequest) -> asyncio.Future[BrokerRegistrationResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    controller = ctx.services.controller
    return respond(
        ctx,
        controller.submit(
            "BrokerRegistration",
            lambda state, now_ms: register_broker(state, request, now_ms, controller.next_offset),
        ),
        lambda epoch: BrokerRegistrationResponse(broker_epoch=epoch),
        lambda error: BrokerRegistrationResponse(error_code=error.code),
    )


HANDLERS = Handlers(handle)
