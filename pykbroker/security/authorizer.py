"""Who may do what. Handlers ask here, as finely as Kafka asks; today everything is allowed.

Not responsible for storing ACLs (a later room) nor for finding out who the client is (net/).
Source: KIP-11, KIP-430, KIP-504; numbers as in Apache Kafka's AclOperation and ResourceType.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class Operation(IntEnum):
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
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"

#: Operations that make sense on a resource; the bits of KIP-430 are taken from these.
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


class Authorizer(Protocol):
    """`principal` is "Type:name", `host` the client's address."""

    def authorize(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool: ...


class AllowAll:
    """Kafka without `authorizer.class.name`: everything is allowed."""

    def authorize(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        return True


class DenyAll:
    """For tests: proves that every handler asks."""

    def authorize(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        return False
