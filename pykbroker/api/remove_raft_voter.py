"""RemoveRaftVoter, version 0. KIP-853: a voter is one no longer, as the quorum decides. The answer waits for the
commit."""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.quorum_requests import NowOrLater
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(ctx: ControllerContext, request: RemoveRaftVoterRequest) -> NowOrLater[RemoveRaftVoterResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refused(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


def refused(request: RemoveRaftVoterRequest, version: int, code: ErrorCode) -> RemoveRaftVoterResponse:
    """Return the response to a request that failed as a whole."""
    return RemoveRaftVoterResponse(error_code=code, error_message=code.message)


HANDLERS = Handlers(handle, refused=refused)
