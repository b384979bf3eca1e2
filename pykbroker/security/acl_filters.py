"""The filters in requests of DescribeAcls and DeleteAcls, and ACLs grouped by resource pattern, as their responses have
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pykbroker.security.acl import Acl, AclFilter, PatternType, Permission, known
from pykbroker.security.authorizer import Operation, Resource


class WireFilter(Protocol):
    """The fields that both requests have."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def has_unknown(wanted: WireFilter) -> bool:
    """Return True if the request has UNKNOWN (0) in a field. Other numbers that this node does not know do not
    count."""
    return 0 in (wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)


def acl_filter(wanted: WireFilter) -> AclFilter:
    return AclFilter(
        known(Resource, wanted.resource_type_filter),
        wanted.resource_name_filter,
        known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        known(Operation, wanted.operation),
        known(Permission, wanted.permission_type),
    )


def by_pattern(acls: Iterable[Acl]) -> dict[tuple[int, str, int], list[Acl]]:
    """Return (resource type, name, pattern type) -> its ACLs. A rule that is stored under several ids is in it once."""
    found: dict[tuple[int, str, int], dict[Acl, None]] = {}
    for acl in acls:
        found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), {})[acl] = None
    return {pattern: list(rules) for pattern, rules in found.items()}
