"""UpdateRaftVoter, version 0. KIP-853: a voter sends its present endpoints to the leader; the quorum decides.

With configured voters (kraft.version 0) the leader keeps the endpoints in memory, and writes nothing.
"""

from __future__ import annotations

from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.quorum_requests import NowOrLater
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


def handle(ctx: ControllerContext, request: UpdateRaftVoterRequest) -> NowOrLater[UpdateRaftVoterResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return UpdateRaftVoterResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ctx.services.quorum.handle(request, ctx.api_version, ctx.listener_name)


HANDLERS = Handlers(handle)
