"""SyncGroup, versions 0-5. KIP-345 (static members), KIP-559 (protocol type and name).

It supports all of the classic protocol.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: From this version on the request must have a protocol type and a protocol name.
_PROTOCOL_TYPE_AND_NAME_FROM = 5


def handle(ctx: BrokerContext, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
    if ctx.api_version >= _PROTOCOL_TYPE_AND_NAME_FROM and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not may(ctx, Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.services.groups.sync(request)


HANDLERS = Handlers(handle)
