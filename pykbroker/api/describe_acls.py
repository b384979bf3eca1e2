"""DescribeAcls, versions 1-3. Answered as a node without an authorizer: SECURITY_DISABLED. ACLs come later."""

from __future__ import annotations

from pykbroker.net.connection import CloseConnection
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker.serving.context import AnyContext
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

UNKNOWN = 0


def handle(ctx: AnyContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if UNKNOWN in wanted:
        # Kafka fails while it reads the request: there is no answer.
        raise CloseConnection("a DescribeAcls request with an UNKNOWN element in its filter")
    code, message = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        message = code.message
    return DescribeAclsResponse(error_code=code, error_message=message)
