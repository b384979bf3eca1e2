"""Interfaces for your own classes inside a node, as protocols. docs/plugins.md has an example.

A properties file names a class as `python:package.module.Class`: `authorizer.class.name`,
`create.topic.policy.class.name`, `alter.config.policy.class.name`, `principal.builder.class`. The class is imported
when the node starts; if it cannot be loaded, the node does not start. Methods run on event loops of the node, so they
must not block. If a method raises, the request or the connection is refused.

This module loads and calls no plugin (plugin_loading.py, plugin_authorizer.py, topic_policies.py, plugin_principals.py
do).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class PolicyViolation(Exception):
    """Raised by a policy: the client gets POLICY_VIOLATION with this text."""


@dataclass(frozen=True, slots=True)
class RequestOfClient:
    """`principal`: "Type:name". `host`: an address as Java writes it. `api`: "Produce" and so on."""

    principal: str
    host: str
    api: str


class AuthorizerPlugin(Protocol):
    """Decides all permissions, also the permissions of nodes and of super users. It has no ACLs: the answer to
    CreateAcls, DeleteAcls and DescribeAcls is SECURITY_DISABLED."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, with the texts of the properties file. An exception stops the start."""
        ...

    def authorize(self, request: RequestOfClient, operation: str, resource_type: str, resource_name: str) -> bool:
        """Return True if the client may do the operation; any other value refuses. `operation` and `resource_type` are
        names of Apache Kafka, such as "DESCRIBE_CONFIGS" and "TRANSACTIONAL_ID"."""
        ...

    def authorize_some(self, request: RequestOfClient, operation: str, resource_type: str) -> bool:
        """Return True if the client may do the operation on at least one resource of the type (KIP-679). Called for
        WRITE of a TOPIC before an idempotent producer gets its id."""
        ...


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With `assignments` (partition -> brokers), `num_partitions` and `replication_factor` are None,
    as in Apache Kafka's CreateTopicPolicy."""

    name: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class CreateTopicPolicy(Protocol):
    def configure(self, configs: Mapping[str, str]) -> None: ...

    def validate(self, topic: NewTopic) -> None:
        """Raise PolicyViolation for a topic that must not be created. Called on the active controller."""
        ...


@dataclass(frozen=True, slots=True)
class ChangedConfigs:
    """`resource_type`: "TOPIC", "BROKER", "GROUP" or "CLIENT_METRICS". `configs`: the changed keys; None sets a key
    back to its default."""

    resource_type: str
    resource_name: str
    configs: Mapping[str, str | None]


class AlterConfigPolicy(Protocol):
    def configure(self, configs: Mapping[str, str]) -> None: ...

    def validate(self, change: ChangedConfigs) -> None:
        """Raise PolicyViolation for a change that must not be made. Called on the active controller."""
        ...


@dataclass(frozen=True, slots=True)
class ProvenClient:
    """The proven identity of a client on a listener; other nodes are clients too. `user` and `mechanism` are None
    without SASL. `certificate` is the client's (DER) if the protocol is SSL; None if the client has shown none."""

    listener: str
    security_protocol: str
    host: str
    user: str | None
    mechanism: str | None
    certificate: bytes | None


class PrincipalBuilder(Protocol):
    """Returns the principal of every connection, on every listener, like Apache Kafka's KafkaPrincipalBuilder."""

    def configure(self, configs: Mapping[str, str]) -> None: ...

    def build(self, client: ProvenClient) -> str:
        """Return the principal, "Type:name". Raise for a client that must not be served. When a session is renewed, the
        principal must stay the same."""
        ...
