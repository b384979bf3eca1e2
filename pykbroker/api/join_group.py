"""JoinGroup, versions 0-9. KIP-62, -134, -345 (static members), -394 (member id required), -559, -800, -814.

It supports all of the classic protocol, also in a group of the consumer protocol (KIP-848).
"""

from __future__ import annotations

from pykbroker.coordinator.group.classic.joining import join_refused
from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

#: Earlier versions have one timeout for session and rebalance.
_REBALANCE_TIMEOUT_FROM = 1
#: In earlier versions the protocol name cannot be null.
_NULLABLE_PROTOCOL_NAME_FROM = 7


def handle(ctx: BrokerContext, request: JoinGroupRequest) -> Later[JoinGroupResponse]:
    version = ctx.api_version
    if not may(ctx, Operation.READ, request.group_id):
        return _in_version(join_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED), version)
    if version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = request.session_timeout_ms

    def may_describe(topic: str) -> bool:
        return ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)

    answer = ctx.services.groups.join(request, ctx.client_id or "", ctx.client_host, version, may_describe)
    return then(answer, lambda response: _in_version(response, version))


def _in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < _NULLABLE_PROTOCOL_NAME_FROM and response.protocol_name is None:
        response.protocol_name = ""
    return response


HANDLERS = Handlers(handle)
