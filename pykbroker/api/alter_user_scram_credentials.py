"""AlterUserScramCredentials, version 0, on the active controller. KIP-554."""

from __future__ import annotations

import asyncio

from pykbroker.controller.result import Verdict
from pykbroker.controller.scram_credentials import alter_credentials
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import immediately, respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(
    ctx: ControllerContext, request: AlterUserScramCredentialsRequest
) -> asyncio.Future[AlterUserScramCredentialsResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return immediately(refused(request, ctx.api_version, code, code.message))

    def answer(verdicts: dict[str, Verdict]) -> AlterUserScramCredentialsResponse:
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=user, error_code=verdict.code, error_message=verdict.message)
                for user, verdict in verdicts.items()
            ]
        )

    return respond(
        ctx,
        ctx.services.controller.submit(
            "AlterUserScramCredentials", lambda state, now_ms: alter_credentials(state, request)
        ),
        answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def refused(
    request: AlterUserScramCredentialsRequest, version: int, code: ErrorCode, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    """Return the response to a request that failed as a whole, with one result for each user in it."""
    users = sorted({one.name for one in request.deletions} | {one.name for one in request.upsertions})
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message or code.message)
            for user in users
        ]
    )


HANDLERS = Handlers(handle, refused=refused)
