"""The ACLs of a cluster: read them, create them, delete them (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykbroker.security.acl import Acl, AclFilter, PatternType, Permission
from pykbroker.security.authorizer import Operation, Resource
from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import check

ANY_ACL: Final = AclFilter(Resource.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
#: The operations that each role needs on its resources, as in Apache Kafka's kafka-acls.
ROLES: Final = {
    "producer": {
        Resource.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
        Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    },
    "consumer": {Resource.TOPIC: (Operation.READ, Operation.DESCRIBE), Resource.GROUP: (Operation.READ,)},
}


def described(cluster: AskedCluster, wanted: AclFilter = ANY_ACL) -> list[Acl]:
    """Return the ACLs that match a filter, in the order of the answer. Raises AskFailed."""
    from pykbroker_wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

    answer = cluster.ask(DescribeAclsRequest(**_filter_fields(wanted)), DescribeAclsResponse)
    check(answer.error_code, answer.error_message)
    return [_acl(resource, one) for resource in answer.resources for one in resource.acls]


def create(cluster: AskedCluster, wanted: Sequence[Acl]) -> None:
    """Add ACLs. An ACL that exists already stays as it is. Raises AskFailed for the first ACL that is refused."""
    from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in wanted
    ]
    for row in cluster.ask_controller(CreateAclsRequest(creations=creations), CreateAclsResponse).results:
        check(row.error_code, row.error_message)


def delete(cluster: AskedCluster, unwanted: Sequence[AclFilter]) -> list[Acl]:
    """Delete every ACL that matches one of the filters, and return the deleted ACLs. Raises AskFailed."""
    from pykbroker_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

    filters = [DeleteAclsFilter(**_filter_fields(one)) for one in unwanted]
    found = []
    for row in cluster.ask_controller(DeleteAclsRequest(filters=filters), DeleteAclsResponse).filter_results:
        check(row.error_code, row.error_message)
        for one in row.matching_acls:
            check(one.error_code, one.error_message)
            found.append(_acl(one, one))
    return found


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    """Return the fields that both messages with filters have."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _acl(resource: Any, rule: Any) -> Acl:
    """Return the ACL of a row. One answer has the resource and the rule in two rows, the other in one."""
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
