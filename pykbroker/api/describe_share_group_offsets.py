"""DescribeShareGroupOffsets, versions 0-1. KIP-932, KIP-1226 (lag, from 1).

It returns the start offsets of share groups, as share coordinators have them. A group, a topic or a partition without a
state is no error, and its start offset is -1. The error is UNSUPPORTED_VERSION while share.version is 0.

An entry that a request repeats is answered once, at its first place. Apache Kafka asks share coordinators for each
entry and repeats the answer, which may have gigabytes then.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, gather, then
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)


def handle(ctx: BrokerContext, request: DescribeShareGroupOffsetsRequest) -> Later[DescribeShareGroupOffsetsResponse]:
    distinct: dict[tuple[object, ...], DescribeShareGroupOffsetsRequestGroup] = {}
    for group in request.groups:
        distinct.setdefault(_entry(group), group)
    found = gather([_group(ctx, group) for group in distinct.values()])
    return then(found, lambda groups: DescribeShareGroupOffsetsResponse(groups=groups))


def _entry(group: DescribeShareGroupOffsetsRequestGroup) -> tuple[object, ...]:
    """Return what makes two entries of a request equal."""
    if group.topics is None:
        return (group.group_id,)
    return (group.group_id, tuple((topic.topic_name, tuple(topic.partitions)) for topic in group.topics))


def _group(
    ctx: BrokerContext, group: DescribeShareGroupOffsetsRequestGroup
) -> Later[DescribeShareGroupOffsetsResponseGroup]:
    shares = ctx.services.groups.served_shares
    if shares is None:
        return _refuse(group, ErrorCode.UNSUPPORTED_VERSION)
    if not may(ctx, Operation.DESCRIBE, group.group_id):
        return _refuse(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if group.topics is None:
        return then(shares.describe_offsets(group.group_id, None), lambda found: _visible(ctx, found))
    allowed: list[DescribeShareGroupOffsetsRequestTopic] = []
    refused: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic in group.topics:
        if _may_describe(ctx, topic.topic_name):
            allowed.append(topic)
        else:
            refused.append(_refused(topic))

    def with_refused(found: DescribeShareGroupOffsetsResponseGroup) -> DescribeShareGroupOffsetsResponseGroup:
        if not found.error_code:
            found.topics += refused
        return found

    return then(shares.describe_offsets(group.group_id, allowed), with_refused)


def _may_describe(ctx: BrokerContext, topic: str) -> bool:
    return ctx.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)


def _visible(
    ctx: BrokerContext, group: DescribeShareGroupOffsetsResponseGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    """Leave out topics that the client may not describe, because it has not asked for them by name."""
    group.topics = [topic for topic in group.topics if _may_describe(ctx, topic.topic_name)]
    return group


def _refuse(group: DescribeShareGroupOffsetsRequestGroup, code: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=code)


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=partition, start_offset=-1, lag=-1, error_code=code, error_message=code.message
            )
            for partition in topic.partitions
        ],
    )


HANDLERS = Handlers(handle)
