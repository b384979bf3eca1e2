"""LeaveGroup, versions 0-5. KIP-345 (several members, removal of static ones by an administrator), KIP-800 (reason).

It supports all of the classic protocol.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

#: In earlier versions one member leaves per request, and its error is the error of the request.
_SEVERAL_MEMBERS_FROM = 3


def handle(ctx: BrokerContext, request: LeaveGroupRequest) -> Later[LeaveGroupResponse]:
    if not may(ctx, Operation.READ, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.api_version >= _SEVERAL_MEMBERS_FROM:
        return ctx.services.groups.leave(request)
    request.members = [MemberIdentity(member_id=request.member_id)]
    return then(ctx.services.groups.leave(request), _of_one)


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    if response.error_code == ErrorCode.NONE and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return LeaveGroupResponse(error_code=response.error_code)


HANDLERS = Handlers(handle)
