"""FetchSnapshot, versions 0-1. KIP-630, KIP-853: a piece of a metadata snapshot, from the leader of the quorum."""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.quorum_requests import NowOrLater
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


def handle(ctx: ControllerContext, request: FetchSnapshotRequest) -> NowOrLater[FetchSnapshotResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return FetchSnapshotResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


HANDLERS = Handlers(handle)
