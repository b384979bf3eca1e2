"""DescribeGroups, versions 0-6. KIP-345 (instance ids), KIP-430 (authorized operations), KIP-1043 (missing groups).

It describes classic groups. As in Apache Kafka, it returns the metadata of members only while the group is stable.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

_AUTHORIZED_OPERATIONS_FROM = 3


def handle(ctx: BrokerContext, request: DescribeGroupsRequest) -> Later[DescribeGroupsResponse]:
    refused: list[DescribedGroup] = []
    allowed: list[str] = []
    for group_id in request.groups:
        if may(ctx, Operation.DESCRIBE, group_id):
            allowed.append(group_id)
        else:
            refused.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with_operations = ctx.api_version >= _AUTHORIZED_OPERATIONS_FROM and request.include_authorized_operations

    def respond(found: list[DescribedGroup]) -> DescribeGroupsResponse:
        if with_operations:
            for group in found:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = ctx.authorized_operations(Resource.GROUP, group.group_id)
        return DescribeGroupsResponse(groups=refused + found)

    return then(ctx.services.groups.describe_groups(allowed, ctx.api_version), respond)


HANDLERS = Handlers(handle)
