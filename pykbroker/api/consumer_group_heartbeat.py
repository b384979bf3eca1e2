"""ConsumerGroupHeartbeat, versions 0-1. KIP-848.

It supports everything: join, static members, leaving, regular expressions (RE2), server-side assignors, classic members
in the same group. The error is UNSUPPORTED_VERSION while group.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(ctx: BrokerContext, request: ConsumerGroupHeartbeatRequest) -> Later[ConsumerGroupHeartbeatResponse]:
    service = ctx.services.groups
    if not service.consumer_protocol_enabled:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not may(ctx, Operation.READ, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def may_describe(topic: str) -> bool:
        return ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)

    if not all(map(may_describe, request.subscribed_topic_names or ())):
        return _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return service.consumer_heartbeat(
        request,
        ctx.client_id or "",
        ctx.client_host,
        ctx.api_version,
        may_describe,
        connection=ctx.peer.connection_number,
    )


def _refuse(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


HANDLERS = Handlers(handle)
