"""DeleteAcls, versions 1-3, on the active controller (KIP-140, KIP-290: pattern types).

Without an authorizer the response is SECURITY_DISABLED.
"""

from __future__ import annotations

import asyncio

from pykbroker.controller.acls import Removed, delete_acls
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.net.connection import CloseConnection
from pykbroker.security.acl_filters import acl_filter, has_unknown
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def check(request: DeleteAclsRequest) -> None:
    """Raises CloseConnection for an UNKNOWN element, because Kafka fails on such a request without a response."""
    if any(map(has_unknown, request.filters)):
        raise CloseConnection("a DeleteAcls request with an UNKNOWN element in its filter")


def handle(
    ctx: ControllerContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | asyncio.Future[DeleteAclsResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused(request, ctx.api_version, code, code.message)
    if not ctx.services.authorizer.keeps_acls:
        return refused(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    filters = [acl_filter(wanted) for wanted in request.filters]
    return respond(
        ctx,
        ctx.services.controller.submit("DeleteAcls", lambda state, now_ms: delete_acls(state, filters)),
        _answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def _answer(removed: list[Removed]) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=one.verdict.code,
                error_message=one.verdict.message,
                matching_acls=[DeleteAclsMatchingAcl(error_message=None, **acl._asdict()) for acl in one.acls],
            )
            for one in removed
        ]
    )


def refused(
    request: DeleteAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """Return the response to a request that failed as a whole."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


HANDLERS = Handlers(handle, refused=refused, check=check)
