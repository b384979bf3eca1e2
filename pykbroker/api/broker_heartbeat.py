"""BrokerHeartbeat, versions 0-2, on controller listeners: a broker's lease, fencing, controlled shutdown. KIP-631."""

from __future__ import annotations

import asyncio

from pykbroker.controller.brokers import heartbeat
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(ctx: ControllerContext, request: BrokerHeartbeatRequest) -> asyncio.Future[BrokerHeartbeatResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return immediately(BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    controller = ctx.services.controller
    answer = controller.submit(
        "BrokerHeartbeat", lambda state, now_ms: heartbeat(state, request, now_ms, controller.next_offset)
    )
    broker_watch = ctx.services.broker_watch
    if broker_watch is not None and not (answer.done() and answer.exception() is not None):
        broker_watch.heartbeat(request.broker_id, request.broker_epoch, ctx.peer, is_leaving=request.want_shut_down)
    return respond(
        ctx,
        answer,
        lambda reply: BrokerHeartbeatResponse(
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        ),
        lambda error: BrokerHeartbeatResponse(error_code=error.code),
    )


HANDLERS = Handlers(handle)
