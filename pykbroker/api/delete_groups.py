"""DeleteGroups, versions 0-3. KIP-229, KIP-1331 (an error message for each group, version 3).

It deletes empty groups, with all their offsets. The error messages are null, because in Apache Kafka only a plugin for
the topologies of streams groups has one, and this broker runs no such plugin.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(ctx: BrokerContext, request: DeleteGroupsRequest) -> Later[DeleteGroupsResponse]:
    refused: list[DeletableGroupResult] = []
    allowed: list[str] = []
    for group_id in dict.fromkeys(request.groups_names):
        if may(ctx, Operation.DELETE, group_id):
            allowed.append(group_id)
        else:
            refused.append(DeletableGroupResult(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    answer = ctx.services.groups.delete_groups(allowed)
    return then(answer, lambda deleted: DeleteGroupsResponse(results=deleted + refused))


HANDLERS = Handlers(handle)
