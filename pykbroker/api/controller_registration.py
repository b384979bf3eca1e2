"""ControllerRegistration, version 0, on controller listeners: where a controller listens. KIP-919."""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import register_controller
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


def handle(
    ctx: ControllerContext, request: ControllerRegistrationRequest
) -> asyncio.Future[ControllerRegistrationResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(_refused(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
    return respond(
        ctx,
        ctx.services.controller.submit(
            "ControllerRegistration", lambda state, now_ms: register_controller(state, request)
        ),
        lambda _: ControllerRegistrationResponse(),
        _refused,
    )


def _refused(error: KafkaError) -> ControllerRegistrationResponse:
    return ControllerRegistrationResponse(error_code=error.code, error_message=error.message)


HANDLERS = Handlers(handle)
