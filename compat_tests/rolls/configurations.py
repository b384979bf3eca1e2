"""The clusters that are rolled from Apache Kafka to pykbroker and back: every pair of choices is in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from compat_tests.mixed_cluster.members import Kind, Member, Quorum
from testkit.oracle.kafka import KAFKA, NEWEST

#: Three nodes that are brokers and controllers, or three controllers and two brokers.
Shape = Literal["combined", "isolated"]
#: The other broker gets the directory of each node, or new nodes are added and old ones removed. Voters of a static
#: quorum cannot be added, so their directories change hands.
Way = Literal["directory", "nodes"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """`directories`: log.dirs of each broker. `release`: that of Apache Kafka."""

    shape: Shape
    quorum: Quorum
    secured: bool
    directories: int
    release: str
    way: Way

    def __str__(self) -> str:
        security = "sasl" if self.secured else "plain"
        return f"{self.shape}-{self.quorum}-{security}-{self.directories}-{self.release}-{self.way}"

    def members(self, kind: Kind) -> dict[int, Member]:
        if self.shape == "combined":
            return {number: Member(kind) for number in (1, 2, 3)}
        controllers = {number: Member(kind, "controller") for number in (1, 2, 3)}
        return {**controllers, **{number: Member(kind, "broker") for number in (11, 12)}}

    def exchanges(self, member: Member) -> bool:
        """Return True if a new node takes the place of this one."""
        return self.way == "nodes" and (self.new_controllers or not member.is_controller)

    @property
    def new_controllers(self) -> bool:
        """True if new nodes take the place of the controllers, too."""
        return self.way == "nodes" and self.quorum == "dynamic"

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings with which one broker may be away, and no acknowledged record is on one broker only before that."""
        brokers, least = (3, 2) if self.shape == "combined" else (2, 1)
        return {
            "default.replication.factor": str(brokers),
            "min.insync.replicas": str(least),
            "offsets.topic.replication.factor": str(brokers),
            "transaction.state.log.replication.factor": str(brokers),
            "transaction.state.log.min.isr": str(least),
            "share.coordinator.state.topic.replication.factor": str(brokers),
            "share.coordinator.state.topic.min.isr": str(least),
            # The defaults: the session of a broker is one of the things that a roll shows.
            "broker.session.timeout.ms": "9000",
            "broker.heartbeat.interval.ms": "2000",
            # Our application of Kafka Streams has a session of two seconds.
            "group.min.session.timeout.ms": "500",
        }


#: Pairwise: test_migration.py checks that no pair of choices is missing.
CONFIGURATIONS = (
    Configuration("combined", "dynamic", False, 1, KAFKA, "directory"),
    Configuration("isolated", "static", True, 2, KAFKA, "directory"),
    Configuration("isolated", "static", False, 1, NEWEST, "nodes"),
    Configuration("combined", "dynamic", True, 2, NEWEST, "nodes"),
    Configuration("isolated", "dynamic", False, 2, KAFKA, "nodes"),
    Configuration("combined", "static", True, 1, NEWEST, "directory"),
    Configuration("isolated", "dynamic", True, 1, NEWEST, "directory"),
    Configuration("combined", "static", False, 2, KAFKA, "directory"),
)
