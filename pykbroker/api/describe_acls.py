"""DescribeAcls, versions 1-3, from the metadata of this node (KIP-140, KIP-290: pattern types).

Without an authorizer the response is SECURITY_DISABLED.
"""

from __future__ import annotations

from pykbroker.dispatch.context import AnyContext
from pykbroker.dispatch.rows import Handlers
from pykbroker.net.connection import CloseConnection
from pykbroker.security.acl_filters import acl_filter, by_pattern, has_unknown
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def handle(ctx: AnyContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if has_unknown(request):
        # Kafka fails while it reads the request and sends no response.
        raise CloseConnection("a DescribeAcls request with an UNKNOWN element in its filter")
    if not ctx.authorize(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(error_code=code, error_message=code.message)
    if not ctx.services.authorizer.keeps_acls:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = acl_filter(request)
    found = by_pattern(acl for acl in ctx.services.metadata.image.acls.values() if wanted.matches(acl))
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in found.items()
        ]
    )


HANDLERS = Handlers(handle)
