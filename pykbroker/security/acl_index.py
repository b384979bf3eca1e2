"""An index of the ACLs of a cluster, with which a decision reads only the few ACLs that can matter. Pure.

Rules are stored by pattern, and within a pattern by principal and host. So a decision does not iterate over 100,000
ACLs of other patterns, nor over 100,000 ACLs of other users on the same pattern. Responsible for the decisions of
Apache Kafka's StandardAuthorizerData, except those for super users. Not responsible for super users, for caching nor
for log lines (standard_authorizer.py).

Invariant: after any adds and removes the index decides like an index that is built from the remaining ACLs
(CVE-2024-27309). Each ACL has its own id. Two ids may have the same rule, which then counts until both are removed.

One difference from Apache Kafka 4.3.1: here `*` matches every name. In Apache Kafka it does not match names that begin
with `*`, so that a DENY for `*` does not apply to a group `*abc`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from pykbroker.security.acl import ANY_USER, WILDCARD, Acl, PatternType, Permission
from pykbroker.security.authorizer import Operation
from pykbroker.security.host_ranges import HostRanges, host_key

#: operation -> the operations whose ALLOW also allows it. A DENY of such an operation does not deny it.
_IMPLIED_BY: Final[Mapping[int, frozenset[int]]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


class Ruling(NamedTuple):
    """The decision of the ACLs. `rule`: the rule that decided, or None if no rule applies to the client and operation.
    `has_rules`: True if the resource has any rule (see allow.everyone.if.no.acl.found)."""

    rule: Acl | None
    has_rules: bool


#: (principal, key of the host) -> the rules of one pattern for this principal and host (host_ranges.py)
_Rules = dict[tuple[str, str], tuple[Acl, ...]]
_Pattern = tuple[int, str]


class AclIndex:
    """The index. Only `add` and `remove` change it."""

    def __init__(self, acls: Mapping[bytes, Acl] | None = None) -> None:
        self._by_id: dict[bytes, Acl] = {}
        self._literal: dict[_Pattern, _Rules] = {}
        self._prefixed: dict[_Pattern, _Rules] = {}
        #: resource type -> length of a prefix -> the number of prefixes with this length
        self._lengths: dict[int, Counter[int]] = {}
        self._ranges = HostRanges()
        #: (resource type, principal) -> the principal's rules for this type, by id
        self._by_principal: dict[tuple[int, str], dict[bytes, Acl]] = {}
        for acl_id, acl in (acls or {}).items():
            self.add(acl_id, acl)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._by_id.values())

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Add a rule. It replaces an earlier rule with the same id."""
        self.remove(acl_id)
        self._by_id[acl_id] = acl
        self._by_principal.setdefault((acl.resource_type, acl.principal), {})[acl_id] = acl
        patterns, pattern = self._patterns(acl), (acl.resource_type, acl.resource_name)
        rules = patterns.get(pattern)
        if rules is None:
            rules = patterns[pattern] = {}
            if patterns is self._prefixed:
                self._lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1
        self._ranges.add(acl.host)
        about = (acl.principal, host_key(acl.host))
        # Sorted, so that the same rule decides, in whatever order the rules were added.
        rules[about] = tuple(sorted((*rules.get(about, ()), acl)))

    def remove(self, acl_id: bytes) -> None:
        acl = self._by_id.pop(acl_id, None)
        if acl is None:
            return
        of_principal = self._by_principal[acl.resource_type, acl.principal]
        del of_principal[acl_id]
        if not of_principal:
            del self._by_principal[acl.resource_type, acl.principal]
        self._ranges.remove(acl.host)
        patterns, pattern = self._patterns(acl), (acl.resource_type, acl.resource_name)
        about = (acl.principal, host_key(acl.host))
        rules = patterns[pattern]
        left = list(rules[about])
        left.remove(acl)  # only one, because the same rule may be there under another id
        if left:
            rules[about] = tuple(left)
            return
        del rules[about]
        if rules:
            return
        del patterns[pattern]
        if patterns is self._prefixed:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]
            if not lengths:
                del self._lengths[acl.resource_type]

    def _patterns(self, acl: Acl) -> dict[_Pattern, _Rules]:
        """Return the table for the pattern type of a rule. As in Apache Kafka, an unknown pattern type counts as
        PREFIXED."""
        return self._literal if acl.pattern_type == PatternType.LITERAL else self._prefixed

    def _applying(self, resource: int, name: str) -> Iterator[_Rules]:
        """Yield the rules of each pattern that matches the name: the name itself, its prefixes from the longest, and
        `*`."""
        found = self._literal.get((resource, name))
        if found is not None:
            yield found
        lengths = self._lengths.get(resource)
        if lengths:
            for length in sorted(lengths, reverse=True):
                if length <= len(name) and (found := self._prefixed.get((resource, name[:length]))) is not None:
                    yield found
        if name != WILDCARD and (found := self._literal.get((resource, WILDCARD))) is not None:
            yield found

    def decide(self, principal: str, host: str, operation: int, resource: int, name: str) -> Ruling:
        """Return the decision. `host`: the address in the form of `java_address`. A DENY that applies has priority over
        each ALLOW."""
        allowed: Acl | None = None
        has_rules = False
        implied_by = _IMPLIED_BY.get(operation, (operation,))
        hosts = self._hosts(host)
        for rules in self._applying(resource, name):
            has_rules = True
            for acl in _about(rules, principal, hosts):
                if acl.permission_type == Permission.ALLOW:
                    if acl.operation == Operation.ALL or acl.operation in implied_by:
                        allowed = acl
                elif acl.operation in (Operation.ALL, operation):
                    # Refuse for DENY, and for an unknown value in a record of another version, as Apache Kafka does.
                    return Ruling(acl, True)
        return Ruling(allowed, has_rules)

    def _hosts(self, host: str) -> frozenset[str]:
        """Return the keys of the hosts of ACLs that mean this host."""
        return frozenset((host, WILDCARD, *self._ranges.containing(host)))

    def allows_some(self, principal: str, host: str, operation: int, resource: int) -> bool:
        """Return True if the rules allow the operation on some resource of the type. Implied operations do not count
        here, as in Apache Kafka (Authorizer.authorizeByResourceType, KIP-679)."""
        literal: dict[int, set[str]] = {Permission.ALLOW: set(), Permission.DENY: set()}
        prefixed: dict[int, set[str]] = {Permission.ALLOW: set(), Permission.DENY: set()}
        hosts = self._hosts(host)
        for who in {principal, ANY_USER}:
            for acl in self._by_principal.get((resource, who), {}).values():
                if (
                    host_key(acl.host) not in hosts
                    or acl.operation not in (operation, Operation.ALL)
                    or acl.permission_type not in literal
                ):
                    continue
                if acl.pattern_type == PatternType.LITERAL:
                    literal[acl.permission_type].add(acl.resource_name)
                elif acl.pattern_type == PatternType.PREFIXED:
                    prefixed[acl.permission_type].add(acl.resource_name)
        if WILDCARD in literal[Permission.DENY]:
            return False
        if WILDCARD in literal[Permission.ALLOW]:
            return True
        denied = prefixed[Permission.DENY]
        names = (literal[Permission.ALLOW] - literal[Permission.DENY]) | prefixed[Permission.ALLOW]
        return any(not _begins_with_one_of(denied, name) for name in names)


def _about(rules: _Rules, principal: str, hosts: Collection[str]) -> Iterator[Acl]:
    """Return an iterator of the rules for a client, in Apache Kafka's order: within a pattern type, by operation."""
    found: list[Acl] = []
    for who in {principal, ANY_USER}:
        for where in hosts:
            found.extend(rules.get((who, where), ()))
    if len(found) > 1:
        found.sort(key=_order)
    return iter(found)


def _order(acl: Acl) -> tuple[int, int, str, str, int]:
    return acl.pattern_type, acl.operation, acl.principal, acl.host, acl.permission_type


def _begins_with_one_of(prefixes: set[str], name: str) -> bool:
    """Return True if `name` begins with one of the prefixes. It makes one look-up per character of the name, because
    there may be 100,000 prefixes."""
    return bool(prefixes) and any(name[:end] in prefixes for end in range(1, len(name) + 1))
