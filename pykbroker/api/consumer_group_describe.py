"""ConsumerGroupDescribe, versions 0-1. KIP-848, KIP-430 (authorized operations), KIP-1099 (member types, from 1).

It describes groups of the consumer protocol; other groups get GROUP_ID_NOT_FOUND. A group with a topic that the client
may not describe is refused as a whole, as in Apache Kafka. The error is UNSUPPORTED_VERSION while group.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(ctx: BrokerContext, request: ConsumerGroupDescribeRequest) -> Later[ConsumerGroupDescribeResponse]:
    service = ctx.services.groups
    if not service.consumer_protocol_enabled:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
        )
    refused: list[DescribedGroup] = []
    allowed: list[str] = []
    for group_id in request.group_ids:
        if may(ctx, Operation.DESCRIBE, group_id):
            allowed.append(group_id)
        else:
            refused.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))

    def respond(found: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        for group in found:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ctx.authorized_operations(Resource.GROUP, group.group_id)
        return ConsumerGroupDescribeResponse(groups=[_visible(ctx, group) for group in refused + found])

    return then(service.describe_consumer_groups(allowed), respond)


def _visible(ctx: BrokerContext, group: DescribedGroup) -> DescribedGroup:
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if all(ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, name) for name in sorted(names)):
        return group
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


HANDLERS = Handlers(handle)
