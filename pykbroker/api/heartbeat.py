"""Heartbeat, versions 0-4. KIP-345 (static members).

It supports all of the classic protocol.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: BrokerContext, request: HeartbeatRequest) -> Later[HeartbeatResponse]:
    if not may(ctx, Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.services.groups.heartbeat(request)


HANDLERS = Handlers(handle)
