"""ListGroups, versions 0-5. KIP-518 (states, from version 4), KIP-848 (types, from version 5).

It lists the groups that this node coordinates; a client asks every broker.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(ctx: BrokerContext, request: ListGroupsRequest) -> Later[ListGroupsResponse]:
    # A client that may describe the cluster sees all groups. Other clients see the groups that they may describe.
    sees_all = ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, quiet=True)

    def respond(answer: tuple[ErrorCode, list[ListedGroup]]) -> ListGroupsResponse:
        code, found = answer
        if not sees_all:
            found = [group for group in found if may(ctx, Operation.DESCRIBE, group.group_id, quiet=True)]
        return ListGroupsResponse(error_code=code, groups=found)

    return then(ctx.services.groups.list_groups(request.states_filter, request.types_filter), respond)


HANDLERS = Handlers(handle)
