"""DescribeQuorum, versions 0-2. KIP-595, KIP-836, KIP-853: voters, observers, how far each one is; the leader knows."""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


def handle(ctx: ControllerContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return refused(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


def refused(request: DescribeQuorumRequest, version: int, code: ErrorCode) -> DescribeQuorumResponse:
    """Return the response to a request that failed as a whole."""
    return DescribeQuorumResponse(error_code=code, error_message=code.message if version >= 2 else None)


HANDLERS = Handlers(handle, refused=refused)
