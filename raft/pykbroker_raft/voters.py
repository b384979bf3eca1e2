"""Voters: replica keys, endpoints, the voter set of KIP-853 and its history along the log.

Responsible for the voter set as a value, its record form, and for which set was in force at an offset. The newest set
in the log is in force as soon as it is appended, committed or not; a truncation restores the older one. Not responsible
for deciding on changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pykbroker_wire.messages.voters_record import Endpoint as EndpointRecord
from pykbroker_wire.messages.voters_record import KRaftVersionFeature, Voter, VotersRecord
from pykbroker_wire.primitives import ZERO_UUID, uuid_to_str

NO_DIRECTORY = ZERO_UUID

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ReplicaKey:
    """A replica and its metadata directory. A zero directory id means that the directory is unknown."""

    id: int
    directory_id: bytes = NO_DIRECTORY

    @property
    def has_directory(self) -> bool:
        return self.directory_id != NO_DIRECTORY

    def __str__(self) -> str:
        return f"{self.id}-{uuid_to_str(self.directory_id)}" if self.has_directory else str(self.id)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of a voter, by listener name."""

    listener: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


def address(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """Return the endpoint of one listener; None if there is none, or if it has no host to connect to."""
    return next((endpoint for endpoint in with_hosts(endpoints) if endpoint.listener == listener), None)


def with_hosts(endpoints: Endpoints) -> Endpoints:
    """Return the endpoints that another node can connect to.

    A node that binds all interfaces and does not resolve its own name sends an empty host.
    """
    return tuple(endpoint for endpoint in endpoints if endpoint.host.strip())


@dataclass(frozen=True, slots=True)
class VoterNode:
    """One voter: its key, its endpoints, and the range of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    def matches(self, key: ReplicaKey) -> bool:
        """Match by id alone if the voter's directory is unknown (kraft.version 0)."""
        return self.key.id == key.id and (not self.key.has_directory or self.key.directory_id == key.directory_id)

    def supports(self, kraft_version: int) -> bool:
        return self.min_kraft_version <= kraft_version <= self.max_kraft_version

    def is_same_as(self, other: VoterNode) -> bool:
        """Return True if both describe the same voter. The order of endpoints does not matter: Apache Kafka keeps them
        in a hash map and writes them in any order."""
        return set(self.endpoints) == set(other.endpoints) and replace(self, endpoints=other.endpoints) == other


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, by ascending id."""

    voters: tuple[VoterNode, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[VoterNode]) -> VoterSet:
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if len({voter.key.id for voter in ordered}) != len(ordered):
            raise ValueError("two voters have the same id")
        return cls(ordered)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __str__(self) -> str:
        return ", ".join(f"{voter.key}" for voter in self.voters) or "none"

    def ids(self) -> tuple[int, ...]:
        return tuple(voter.key.id for voter in self.voters)

    def get(self, voter_id: int) -> VoterNode | None:
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.get(key.id)
        return voter is not None and voter.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.is_voter(key)

    def endpoints(self, voter_id: int) -> Endpoints:
        voter = self.get(voter_id)
        return voter.endpoints if voter is not None else ()

    def needs_update(self, node: VoterNode) -> bool:
        """Return True if the set contains this voter with other data."""
        voter = self.get(node.key.id)
        return voter is not None and voter.matches(node.key) and not voter.is_same_as(node)

    def updated(self, node: VoterNode) -> VoterSet | None:
        """Return the set with this voter's new data; None if it is not a voter."""
        if not self.is_voter(node.key):
            return None
        return VoterSet.of(node if voter.key.id == node.key.id else voter for voter in self.voters)

    def updated_by_id(self, node: VoterNode) -> VoterSet | None:
        """Like `updated`, for sets whose directories may have been replaced (kraft.version 0): only the id counts."""
        if self.get(node.key.id) is None:
            return None
        return VoterSet.of(node if voter.key.id == node.key.id else voter for voter in self.voters)

    def added(self, node: VoterNode) -> VoterSet | None:
        """Return the set with one more voter; None if a voter has its id already."""
        return None if self.get(node.key.id) is not None else VoterSet.of((*self.voters, node))

    def removed(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without this voter; None if no voter has this id and directory, or it is the only voter."""
        voter = self.get(key.id)
        if voter is None or voter.key != key or len(self.voters) == 1:
            return None
        return VoterSet.of(other for other in self.voters if other is not voter)

    def supports(self, kraft_version: int) -> bool:
        """Return True if each voter supports this kraft.version, as far as it has sent its range."""
        return all(voter.supports(kraft_version) for voter in self.voters)

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[EndpointRecord(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                    ),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            VoterNode(
                ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
                tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )

    def without_directories(self) -> VoterSet:
        return VoterSet(tuple(replace(voter, key=ReplicaKey(voter.key.id)) for voter in self.voters))


NO_VOTERS = VoterSet()


@dataclass(slots=True)
class History(Generic[T]):
    """Values by the offset of the record that set them, ascending."""

    offsets: list[int] = field(default_factory=list)
    values: list[T] = field(default_factory=list)

    def add(self, offset: int, value: T) -> None:
        if self.offsets and offset <= self.offsets[-1]:
            raise ValueError(f"offset {offset} is not above {self.offsets[-1]}")
        self.offsets.append(offset)
        self.values.append(value)

    def last(self) -> T | None:
        return self.values[-1] if self.values else None

    def last_offset(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def at(self, offset: int) -> T | None:
        index = bisect_right(self.offsets, offset) - 1
        return self.values[index] if index >= 0 else None

    def truncate(self, end_offset: int) -> None:
        """Remove the values at or above the new end of the log."""
        while self.offsets and self.offsets[-1] >= end_offset:
            self.offsets.pop()
            self.values.pop()

    def forget_before(self, start_offset: int) -> None:
        """Keep the value in force at the new start of the log and all values after it."""
        index = bisect_right(self.offsets, start_offset) - 1
        if index > 0:
            del self.offsets[:index], self.values[:index]

    def clear(self) -> None:
        self.offsets.clear()
        self.values.clear()


@dataclass(slots=True)
class VoterHistory:
    """Voter sets and kraft.version along the log; the configured voters are in force until a record is seen."""

    static_voters: VoterSet = NO_VOTERS
    sets: History[VoterSet] = field(default_factory=History)
    versions: History[int] = field(default_factory=History)
    #: the ids of all voters that the newest leader in the log knew
    electors: tuple[int, ...] | None = None

    @property
    def voters(self) -> VoterSet:
        return self.sets.last() or self.static_voters

    @property
    def kraft_version(self) -> int:
        return self.versions.last() or 0

    @property
    def voters_offset(self) -> int | None:
        """The offset of the set in force: -1 in the checkpoint of a new quorum, None if it is only configured."""
        return self.sets.last_offset()

    @property
    def voters_before(self) -> VoterSet:
        """The set that the one in force has replaced, if it is known; else the configured voters."""
        return self.sets.values[-2] if len(self.sets.values) > 1 else self.static_voters

    def truncate(self, end_offset: int) -> None:
        self.sets.truncate(end_offset)
        self.versions.truncate(end_offset)

    def forget_before(self, start_offset: int) -> None:
        self.sets.forget_before(start_offset)
        self.versions.forget_before(start_offset)

    def reset(self, offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """Start again from a snapshot whose last offset is `offset`."""
        self.sets.clear()
        self.versions.clear()
        if kraft_version > 0:
            self.versions.add(offset, kraft_version)
        if voters is not None:
            self.sets.add(offset, voters)
