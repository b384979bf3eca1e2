"""EndQuorumEpoch, versions 0-1. KIP-595, KIP-853: a leader steps down; the quorum decides."""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.quorum_requests import NowOrLater
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle(ctx: ControllerContext, request: EndQuorumEpochRequest) -> NowOrLater[EndQuorumEpochResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return EndQuorumEpochResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


HANDLERS = Handlers(handle)
