"""One ACL as a value, and the filters that find ACLs: pattern types, permissions, and the principal of a rule.

Not responsible for decisions (acl_index.py) nor for where ACLs are stored (the metadata image). Numbers are those of
the protocol and of AccessControlEntryRecord. Source: KIP-11, KIP-290 (prefixes), Apache Kafka's StandardAcl.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv6Address
from typing import Final, NamedTuple, TypeVar

from pykbroker.security.authorizer import Operation, Resource

#: As a LITERAL resource name it matches any name; as a host it matches any host.
WILDCARD: Final = "*"
ANY_USER: Final = "User:*"


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


E = TypeVar("E", bound=IntEnum)


def known(kind: type[E], code: int) -> E:
    """Return the member with this code, or UNKNOWN (0) for a code of a newer protocol."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


class Acl(NamedTuple):
    """One ACL. `principal` is "Type:name", `host` an address, a range of addresses or `*`. Types and operations are
    numbers, not enums, because they come from records.

    The fields have the names of AccessControlEntryRecord and of responses, which are made from them directly."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __str__(self) -> str:
        """Return the text that Apache Kafka 4.3.1 writes for a StandardAcl in its log lines."""
        return (
            f"StandardAcl[resourceType={known(Resource, self.resource_type).name}, resourceName={self.resource_name}, "
            f"patternType={known(PatternType, self.pattern_type).name}, principal={self.principal}, host={self.host}, "
            f"operation={known(Operation, self.operation).name}, "
            f"permissionType={known(Permission, self.permission_type).name}]"
        )


class AclFilter(NamedTuple):
    """The filter of DescribeAcls and DeleteAcls. A field with None or ANY matches anything.

    With the pattern type MATCH, the filter finds every rule that applies to the resource with that name: LITERAL rules
    for the name or `*`, and PREFIXED rules for a prefix of the name (KIP-290).
    """

    resource_type: Resource
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission_type: Permission

    def matches(self, acl: Acl) -> bool:
        return (
            (self.resource_type == Resource.ANY or self.resource_type == acl.resource_type)
            and self._names(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and (self.operation == Operation.ANY or self.operation == acl.operation)
            and (self.permission_type == Permission.ANY or self.permission_type == acl.permission_type)
        )

    def _names(self, acl: Acl) -> bool:
        name, wanted = self.resource_name, self.pattern_type
        if wanted not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        if wanted != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)


def java_address(host: str) -> str:
    """Return an address as Java writes it (InetAddress.getHostAddress), because the host of an ACL is compared with
    this text: `0:0:0:0:0:0:0:1` for `::1`, and the IPv4 address for an IPv4 address that is mapped into IPv6."""
    if ":" not in host:
        return host
    address, _, scope = host.partition("%")
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return f"{groups}%{scope}" if scope else groups
