"""CreateAcls, versions 1-3. Answered as a node without an authorizer: SECURITY_DISABLED. ACLs come later."""

from __future__ import annotations

from pykbroker.net.connection import CloseConnection
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving.context import ControllerContext
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

UNKNOWN = 0


def check(request: CreateAclsRequest) -> None:
    """Kafka fails while it reads such a request: there is no answer."""
    for acl in request.creations:
        if UNKNOWN in (acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type):
            raise CloseConnection("a CreateAcls request with an UNKNOWN element")


def handle(ctx: ControllerContext, request: CreateAclsRequest) -> CreateAclsResponse:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused(request, ctx.api_version, code, code.message)
    return refused(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refused(
    request: CreateAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> CreateAclsResponse:
    """The answer to a request that failed as a whole."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )
