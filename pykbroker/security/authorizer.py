"""The interface of authorizers: may this client do this operation on that resource? And an authorizer that allows
everything.

Not responsible for ACLs (acl.py, acl_index.py, standard_authorizer.py) nor for finding the principal of a client
(net/). Source: KIP-11, KIP-430, KIP-504, KIP-679; numbers as in Apache Kafka's AclOperation and ResourceType.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from pykbroker.security.peer_session import PeerSession


class Operation(IntEnum):
    #: The hash of the number. The hash of an Enum is slower, because it is Python code, and each look-up of a decision
    #: needs it.
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"

#: The operations that exist for each type of resource. The bits of KIP-430 are only for these.
SUPPORTED_OPERATIONS: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    Resource.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    Resource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


class AskingPeer(Protocol):
    @property
    def session(self) -> PeerSession: ...

    @property
    def client_host(self) -> str: ...


class Asker(Protocol):
    """The request for which a handler needs a decision. `principal` and `client_host` are those of `peer`; to read them
    from `peer` takes a tenth of the time."""

    @property
    def peer(self) -> AskingPeer: ...

    @property
    def principal(self) -> str:
        """ "Type:name"."""
        ...

    @property
    def client_host(self) -> str: ...

    @property
    def api_key(self) -> int: ...


class Authorizer(Protocol):
    @property
    def keeps_acls(self) -> bool:
        """True if its rules are the ACLs of the metadata log, which clients set and list."""
        ...

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        """Return True if the operation is allowed. `quiet`: do not report a refusal, because another permission may be
        enough, or because the response just omits the resource. Allowed operations are still reported."""
        ...

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        """Return the same decision without reporting it, because it is only shown (the bits of KIP-430)."""
        ...

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        """Return True if the operation is allowed on at least one resource of the type (KIP-679)."""
        ...


class AuthorizerNotReady(Exception):
    """The ACLs are not loaded yet, so only requests of super users are decided."""


class AllowAll:
    """Kafka without `authorizer.class.name`: everything is allowed."""

    keeps_acls = False

    def authorize(self, asker: Asker, operation: Operation, resource: Resource, name: str, quiet: bool = False) -> bool:
        return True

    def would_allow(self, asker: Asker, operation: Operation, resource: Resource, name: str) -> bool:
        return self.authorize(asker, operation, resource, name)

    def authorize_some(self, asker: Asker, operation: Operation, resource: Resource) -> bool:
        return True
