"""The cluster as the metadata records in a directory describe it: addresses of nodes, directories of brokers, features.

Pure: records in, values out. It serves tools that look at the directories of stopped nodes. Not responsible for the
image that a running node has (metadata/), nor for reading the folder (pykbroker_raft.stored_records).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pykbroker.metadata.features import METADATA_VERSION, REGISTERED, metadata_version_name
from pykbroker.metadata.image import VersionRange
from pykbroker.metadata.records import decode_record
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from pykbroker_wire.stored_framing import UnknownRecordType


class NewerRecords(ValueError):
    """A newer release has written the records."""


class StoredAddress(NamedTuple):
    """Where a node of the cluster listens."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.host}:{self.port}"


@dataclass(slots=True)
class StoredCluster:
    voters: set[int] = field(default_factory=set)
    #: a broker or controller -> its listeners
    listeners: dict[tuple[str, int], list[StoredAddress]] = field(default_factory=dict)
    #: broker -> the ids of its directories
    directories: dict[int, set[bytes]] = field(default_factory=dict)

    def addresses(self) -> list[StoredAddress]:
        """Return each address once."""
        return sorted({address for found in self.listeners.values() for address in found})


def stored_cluster(voters: VoterSet | None, values: Iterable[bytes]) -> StoredCluster:
    """Read the records in their order. Raises NewerRecords; DecodeError for damage."""
    cluster = StoredCluster()
    levels: dict[str, int] = {}
    try:
        for value in values:
            record = decode_record(value)
            if isinstance(record, FeatureLevelRecord):
                levels[record.name] = record.feature_level
            else:
                _take(cluster, record)
    except UnknownRecordType as error:
        raise NewerRecords(f"its metadata log has records of a newer release ({error})") from None
    for name, level in levels.items():
        if level > (known := REGISTERED.get(name, VersionRange(0, 0))).max:
            most = metadata_version_name(known.max) if name == METADATA_VERSION else known.max
            raise NewerRecords(f"{name} is at level {level}, and this release knows none above {most}")
    for node in voters.voters if voters is not None else ():
        cluster.voters.add(node.key.id)
        cluster.listeners["voter", node.key.id] = [
            StoredAddress(node.key.id, each.host, each.port) for each in node.endpoints
        ]
    return cluster


def _take(cluster: StoredCluster, record: object) -> None:
    """Take what the record has about brokers and controllers. Most records have nothing."""
    match record:
        case RegisterBrokerRecord():
            number = record.broker_id
            cluster.listeners["broker", number] = [
                StoredAddress(number, each.host, each.port) for each in record.end_points
            ]
            cluster.directories[number] = set(record.log_dirs)
        case BrokerRegistrationChangeRecord():
            if record.log_dirs:
                cluster.directories[record.broker_id] = set(record.log_dirs)
        case UnregisterBrokerRecord():
            cluster.listeners.pop(("broker", record.broker_id), None)
            cluster.directories.pop(record.broker_id, None)
        case RegisterControllerRecord():
            number = record.controller_id
            cluster.listeners["controller", number] = [
                StoredAddress(number, each.host, each.port) for each in record.end_points
            ]
