"""AddRaftVoter, versions 0-1. KIP-853: a controller becomes a voter, as the quorum decides. The answer waits for the
commit.

Version 1 may ask for the response as soon as the new voters are appended (KIP-1186).
"""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.quorum_requests import NowOrLater
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(ctx: ControllerContext, request: AddRaftVoterRequest) -> NowOrLater[AddRaftVoterResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        return refused(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


def refused(request: AddRaftVoterRequest, version: int, code: ErrorCode) -> AddRaftVoterResponse:
    """Return the response to a request that failed as a whole."""
    return AddRaftVoterResponse(error_code=code, error_message=code.message)


HANDLERS = Handlers(handle, refused=refused)
