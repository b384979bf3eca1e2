"""ShareGroupDescribe, version 1. KIP-932, KIP-430 (authorized operations).

It describes share groups; other groups get GROUP_ID_NOT_FOUND. A group with a topic that the client may not describe is
refused as a whole, as in Apache Kafka. The error is UNSUPPORTED_VERSION while share.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(ctx: BrokerContext, request: ShareGroupDescribeRequest) -> Later[ShareGroupDescribeResponse]:
    shares = ctx.services.groups.served_shares
    if shares is None:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
        )
    refused: list[DescribedGroup] = []
    allowed: list[str] = []
    for group_id in request.group_ids:
        if may(ctx, Operation.DESCRIBE, group_id):
            allowed.append(group_id)
        else:
            refused.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))

    def respond(found: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        for group in found:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ctx.authorized_operations(Resource.GROUP, group.group_id)
        return ShareGroupDescribeResponse(groups=[_visible(ctx, group) for group in refused + found])

    return then(shares.describe(allowed), respond)


def _visible(ctx: BrokerContext, group: DescribedGroup) -> DescribedGroup:
    names = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
    if all(ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name) for name in sorted(names)):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


HANDLERS = Handlers(handle)
