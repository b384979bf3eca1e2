"""DeleteAcls, versions 1-3. Answered as a node without an authorizer: SECURITY_DISABLED. ACLs come later."""

from __future__ import annotations

from pykbroker.net.connection import CloseConnection
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving.context import ControllerContext
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

UNKNOWN = 0


def check(request: DeleteAclsRequest) -> None:
    """Kafka fails while it reads such a request: there is no answer."""
    for acl in request.filters:
        if UNKNOWN in (acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type):
            raise CloseConnection("a DeleteAcls request with an UNKNOWN element in its filter")


def handle(ctx: ControllerContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not ctx.authorize(Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused(request, ctx.api_version, code, code.message)
    return refused(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def refused(
    request: DeleteAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> DeleteAclsResponse:
    """The answer to a request that failed as a whole."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )
