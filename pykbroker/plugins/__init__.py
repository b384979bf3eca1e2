"""Programs of yours inside a node: what they implement, as protocols. docs/plugins.md has an example.

A properties file names a class as `python:package.module.Class`: `authorizer.class.name`,
`create.topic.policy.class.name`, `alter.config.policy.class.name`, `principal.builder.class`. The class is imported
when the node starts; what cannot be loaded stops the start. Methods run on event loops of the node: they must not
block. What raises, refuses.

Nothing here loads or calls a plugin (plugin_loading.py, plugin_authorizer.py, topic_policies.py, plugin_principals.py).
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
    """Decides all questions, those of nodes among each other and of super users too. It keeps no ACLs: CreateAcls,
    DeleteAcls and DescribeAcls are answered with SECURITY_DISABLED."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, with the texts of the properties file. What raises stops the start."""
        ...

    def authorize(self, request: RequestOfClient, operation: str, resource_type: str, resource_name: str) -> bool:
        """Whether the client may. Names as in Apache Kafka: "DESCRIBE_CONFIGS", "TRANSACTIONAL_ID". Only True
        allows."""
        ...

    def authorize_some(self, request: RequestOfClient, operation: str, resource_type: str) -> bool:
        """Whether there is any resource of the type on which the client may (KIP-679): asked for WRITE of a TOPIC
        before an idempotent producer gets its id."""
        ...


@dataclass(frozen=True, slots=True)
class NewTopic:
    """With `assignments` (partition -> brokers) the other two are None, as in Apache Kafka's CreateTopicPolicy."""

    name: str
    num_partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class CreateTopicPolicy(Protocol):
    def configure(self, configs: Mapping[str, str]) -> None: ...

    def validate(self, topic: NewTopic) -> None:
        """Raise PolicyViolation for a topic that must not be. Called on the active controller."""
        ...


@dataclass(frozen=True, slots=True)
class ChangedConfigs:
    """`resource_type`: "TOPIC", "BROKER", "GROUP" or "CLIENT_METRICS". `configs`: what changes; None: back to the
    default."""

    resource_type: str
    resource_name: str
    configs: Mapping[str, str | None]


class AlterConfigPolicy(Protocol):
    def configure(self, configs: Mapping[str, str]) -> None: ...

    def validate(self, change: ChangedConfigs) -> None:
        """Raise PolicyViolation for a change that must not be. Called on the active controller."""
        ...


@dataclass(frozen=True, slots=True)
class ProvenClient:
    """What a client has proved to a listener, clients that are nodes too. `user`, `mechanism`: of SASL, None without.
    `certificate`: the client's on a listener whose protocol is SSL, DER; None where it has shown none."""

    listener: str
    security_protocol: str
    host: str
    user: str | None
    mechanism: str | None
    certificate: bytes | None


class PrincipalBuilder(Protocol):
    """As Apache Kafka's KafkaPrincipalBuilder: names the principal of every connection, on every listener."""

    def configure(self, configs: Mapping[str, str]) -> None: ...

    def build(self, client: ProvenClient) -> str:
        """The principal, "Type:name". Raise for a client that is not to be served. With the renewal of a session the
        principal must stay."""
        ...
