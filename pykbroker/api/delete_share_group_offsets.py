"""DeleteShareGroupOffsets, version 0. KIP-932.

It deletes the offsets of topics of a share group without members. The error is UNSUPPORTED_VERSION while share.version
is 0.
"""

from __future__ import annotations

from pykbroker.dispatch.context import BrokerContext
from pykbroker.dispatch.permissions import may, may_read_topic
from pykbroker.dispatch.rows import Handlers
from pykbroker.runtime.later import Later, then
from pykbroker.security.authorizer import Operation
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


def handle(ctx: BrokerContext, request: DeleteShareGroupOffsetsRequest) -> Later[DeleteShareGroupOffsetsResponse]:
    shares = ctx.services.groups.served_shares
    if shares is None:
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not may(ctx, Operation.DELETE, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed: list[DeleteShareGroupOffsetsRequestTopic] = []
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in request.topics:
        if may_read_topic(ctx, topic.topic_name):
            allowed.append(topic)
        else:
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name, error_code=code, error_message=code.message
                )
            )

    def with_refused(response: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
        if not response.error_code:
            response.responses = refused + response.responses
        return response

    deleted = shares.delete_offsets(DeleteShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed))
    return then(deleted, with_refused)


def _refuse(code: ErrorCode) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=code.message)


HANDLERS = Handlers(handle)
