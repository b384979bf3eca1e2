"""ShareGroupHeartbeat, version 1. KIP-932.

Join, heartbeat and leave of a member of a share group. The answer to a join may have to wait for an assignment. The
error is UNSUPPORTED_VERSION while share.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.dispatch.share_members import is_member_id
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def handle(ctx: BrokerContext, request: ShareGroupHeartbeatRequest) -> Later[ShareGroupHeartbeatResponse]:
    shares = ctx.services.groups.served_shares
    if shares is None:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not may(ctx, Operation.READ, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not is_member_id(request.member_id):
        return _refuse(ErrorCode.INVALID_REQUEST)
    names = request.subscribed_topic_names or ()
    if not all(ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        return _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return shares.heartbeat(request, ctx.client_id or "", ctx.client_host)


def _refuse(code: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code)


HANDLERS = Handlers(handle)
