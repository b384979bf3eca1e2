"""AlterShareGroupOffsets, version 0. KIP-932.

It sets the start offsets of a share group without members. A group that does not exist comes into being. The error is
UNSUPPORTED_VERSION while share.version is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_read_topic
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from pykbroker_wire.primitives import ZERO_UUID


def handle(ctx: BrokerContext, request: AlterShareGroupOffsetsRequest) -> Later[AlterShareGroupOffsetsResponse]:
    shares = ctx.services.groups.served_shares
    if shares is None:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not may(ctx, Operation.READ, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed: list[AlterShareGroupOffsetsRequestTopic] = []
    refused: list[AlterShareGroupOffsetsResponseTopic] = []
    for topic in request.topics:
        if may_read_topic(ctx, topic.topic_name):
            allowed.append(topic)
        else:
            refused.append(_refused(topic, ctx.services.groups.topics.id_of(topic.topic_name)))

    def with_refused(response: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = refused + response.responses
        return response

    altered = shares.alter_offsets(AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed))
    return then(altered, with_refused)


def _refuse(code: ErrorCode) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=code.message)


def _refused(topic: AlterShareGroupOffsetsRequestTopic, topic_id: bytes | None) -> AlterShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic_id or ZERO_UUID,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index, error_code=code, error_message=code.message
            )
            for partition in topic.partitions
        ],
    )


HANDLERS = Handlers(handle)
