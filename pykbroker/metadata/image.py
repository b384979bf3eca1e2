"""The cluster at one offset of the metadata log: topics, partitions, brokers, configs, features.

All objects here are immutable, and a reader may keep them as long as it likes. A new image shares as much as possible
with the one before it (`delta.py` builds it). Not responsible for how records change it, nor for notifying publishers.

Invariants: `topics.by_name` and `topics.by_id` hold the same TopicImage objects; a mapping never changes after its
image was made; a config resource without values is absent, and has no empty mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from pykbroker.security.acl import Acl
from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.primitives import ZERO_UUID

#: Directory ids with a special meaning (KIP-858).
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"
DIRECTORY_RESERVED_LAST = bytes(15) + b"\x64"

NO_LEADER = -1

#: LeaderRecoveryState of KIP-704.
RECOVERED = 0
RECOVERING = 1

_EMPTY: Mapping[Any, Any] = MappingProxyType({})


class ConfigResource:
    """Resource types with the protocol's numbers. The type is stored as an int."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Endpoint(NamedTuple):
    """The address of one listener of a node."""

    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    """The levels of one feature that a node supports."""

    min: int
    max: int


class PartitionImage(NamedTuple):
    """One partition. It is a NamedTuple, because 1,000 are made at once, and a frozen dataclass would cost twice as
    much."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, replica: int) -> bytes | None:
        """Return the log directory that holds `replica`, None if it is not one of the replicas."""
        try:
            return self.directories[self.replicas.index(replica)]
        except (ValueError, IndexError):
            return None


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: bytes
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_name: Mapping[str, TopicImage] = field(default_factory=lambda: _EMPTY)
    by_id: Mapping[bytes, TopicImage] = field(default_factory=lambda: _EMPTY)

    def __len__(self) -> int:
        return len(self.by_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.by_name.get(topic)
        return None if found is None else found.partitions.get(index)


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. `epoch` is the offset of its registration record."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    features: Mapping[str, VersionRange]
    cordoned_directories: tuple[bytes, ...] = ()
    is_migrating_zk_broker: bool = False

    @property
    def is_cordoned(self) -> bool:
        """True if each log directory is cordoned, so that the broker gets no new replicas (KIP-1066)."""
        return bool(self.directories) and set(self.directories) <= set(self.cordoned_directories)

    def has_online_directory(self, directory: bytes) -> bool:
        """Return True if the directory is online. As in Kafka, ids with a special meaning (except LOST) are online, and
        so is any id on a broker without ids."""
        if directory == DIRECTORY_LOST:
            return False
        if not self.directories or directory in self.directories:
            return True
        return directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A registered controller."""

    id: int
    incarnation_id: bytes
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, VersionRange]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Set configuration values (never defaults), by (resource type, name). The name "" is the cluster-wide default."""

    #: values may be passwords
    by_resource: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=lambda: _EMPTY, repr=False)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.by_resource.get((resource_type, name), _EMPTY)

    def names(self, resource_type: int) -> Iterator[str]:
        return (name for kind, name in self.by_resource if kind == resource_type)


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """Finalised levels without `metadata.version`, which is separate because it decides the records' versions.

    `metadata_version` is 0 before the first FeatureLevelRecord. `kraft.version` is not included, because the quorum
    owns it.
    """

    metadata_version: int = 0
    finalized: Mapping[str, int] = field(default_factory=lambda: _EMPTY)

    def all(self) -> dict[str, int]:
        """Return the finalised levels, with `metadata.version` once it is known."""
        levels = dict(self.finalized)
        if self.metadata_version:
            levels["metadata.version"] = self.metadata_version
        return levels

    @property
    def elr_enabled(self) -> bool:
        return self.finalized.get("eligible.leader.replicas.version", 0) > 0


class DelegationTokenImage(NamedTuple):
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


#: A quota's entity: sorted (type, name) pairs. The name None is the type's default.
QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole image. `offset` and `epoch` are those of its last record, -1 for the empty image."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    features: FeaturesImage = field(default_factory=FeaturesImage)
    brokers: Mapping[int, BrokerImage] = field(default_factory=lambda: _EMPTY)
    controllers: Mapping[int, ControllerImage] = field(default_factory=lambda: _EMPTY)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=lambda: _EMPTY)
    #: The first producer id that was not handed out yet, -1 if no block of ids was.
    producer_ids_next: int = -1
    acls: Mapping[bytes, Acl] = field(default_factory=lambda: _EMPTY)
    #: mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512) and user name
    scram: Mapping[tuple[int, str], StoredKeys] = field(default_factory=lambda: _EMPTY)
    delegation_tokens: Mapping[str, DelegationTokenImage] = field(default_factory=lambda: _EMPTY)

    def broker_is_active(self, broker_id: int) -> bool:
        """Return True if the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


EMPTY_IMAGE = MetadataImage()
