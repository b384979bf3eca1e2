"""CreateAcls, versions 1-3, on the active controller (KIP-140, KIP-290: pattern types).

Without an authorizer the response is SECURITY_DISABLED.
"""

from __future__ import annotations

import asyncio

from pykbroker.controller.acls import create_acls
from pykbroker.controller.result import Verdict
from pykbroker.dispatch.context import ControllerContext
from pykbroker.dispatch.on_controller import respond
from pykbroker.dispatch.rows import Handlers
from pykbroker.net.connection import CloseConnection
from pykbroker.security.acl import Acl, PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

UNKNOWN = 0


def check(request: CreateAclsRequest) -> None:
    """Raises CloseConnection for an UNKNOWN element, because Kafka fails on such a request without a response."""
    for acl in request.creations:
        if UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type):
            raise CloseConnection("a CreateAcls request with an UNKNOWN element")


def handle(
    ctx: ControllerContext, request: CreateAclsRequest
) -> CreateAclsResponse | asyncio.Future[CreateAclsResponse]:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused(request, ctx.api_version, code, code.message)
    if not ctx.services.authorizer.keeps_acls:
        return refused(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    if any(map(_is_no_acl, request.creations)):
        # Kafka cannot make ACLs from such values, and answers with this error.
        return refused(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    acls = [
        Acl(
            acl.resource_type,
            acl.resource_name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in request.creations
    ]
    return respond(
        ctx,
        ctx.services.controller.submit("CreateAcls", lambda state, now_ms: create_acls(state, acls)),
        _answer,
        lambda error: refused(request, ctx.api_version, error.code, error.message),
    )


def _is_no_acl(acl: AclCreation) -> bool:
    """Return True if a field has a value that only filters may have."""
    return (
        acl.resource_type == Resource.ANY
        or acl.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == Operation.ANY
        or acl.permission_type == Permission.ANY
    )


def _answer(verdicts: list[Verdict]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=verdict.code, error_message=verdict.message)
            if verdict.failed
            else AclCreationResult()
            for verdict in verdicts
        ]
    )


def refused(
    request: CreateAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """Return the response to a request that failed as a whole."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


HANDLERS = Handlers(handle, refused=refused, check=check)
