"""The clients of the matrix: each has its rules, a name on the listener of brokers, an address on that of controllers.

`NONE` may do nothing, `OWNER` everything with the resources that are mine, and `EVERYTHING` everything. For each
operation on each kind of resource, one client may do only that, and one may do everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from compat_tests.acls.acl_cases import MINE
from pykbroker.security.acl import PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, Resource
from pykbroker_wire.messages.create_acls import AclCreation

#: The kinds of resources in the authorizations of the tested APIs.
KINDS: Final = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
#: The addresses of nodes, which no client of the matrix has. Their rules exist so that each resource has one.
NODE_HOSTS: Final = ("127.0.0.1", "0:0:0:0:0:0:0:1")


class Rule(NamedTuple):
    permission: Permission
    operation: Operation
    resource: Resource
    everywhere: bool = False


class AclClient(NamedTuple):
    """`host`: the address of its connections to controllers, where all clients are User:ANONYMOUS."""

    name: str
    host: str
    rules: tuple[Rule, ...]

    @property
    def password(self) -> str:
        return f"{self.name}-secret"

    def creations(self) -> Iterator[AclCreation]:
        for rule in self.rules:
            for principal, host in ((f"User:{self.name}", "*"), ("User:ANONYMOUS", self.host)):
                yield creation(rule, principal, host)


def creation(rule: Rule, principal: str, host: str) -> AclCreation:
    if rule.resource == Resource.CLUSTER:
        name, pattern = CLUSTER_NAME, PatternType.LITERAL
    elif rule.everywhere:
        name, pattern = "*", PatternType.LITERAL
    else:
        name, pattern = MINE, PatternType.PREFIXED
    return AclCreation(
        resource_type=rule.resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _rules() -> Iterator[tuple[str, tuple[Rule, ...]]]:
    everything = tuple(Rule(Permission.ALLOW, Operation.ALL, kind, everywhere=True) for kind in KINDS)
    yield "none", ()
    yield "everything", everything
    yield "owner", tuple(Rule(Permission.ALLOW, Operation.ALL, kind) for kind in KINDS)
    for kind in KINDS:
        for operation in (*SUPPORTED_OPERATIONS[kind], Operation.ALL):
            said = f"{kind.name}-{operation.name}".lower().replace("_", "-")
            yield f"only-{said}", (Rule(Permission.ALLOW, operation, kind),)
            yield f"not-{said}", (*everything, Rule(Permission.DENY, operation, kind))


CLIENTS: Final = tuple(
    AclClient(name, f"127.1.{number // 200}.{number % 200 + 1}", rules) for number, (name, rules) in enumerate(_rules())
)
NONE, EVERYTHING, OWNER = CLIENTS[:3]


def rules_of_nodes() -> Iterator[AclCreation]:
    """Yield the permissions of nodes over their own listeners: User:ANONYMOUS from the addresses of this machine."""
    for kind in KINDS:
        for host in NODE_HOSTS:
            yield creation(Rule(Permission.ALLOW, Operation.ALL, kind, everywhere=True), "User:ANONYMOUS", host)
