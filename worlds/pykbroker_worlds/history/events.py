"""The events of clients, and the contents of a log at the end: the input of the checkers.

Responsible only for the values. A `History` is one list in the order in which events ended. `started` and `ended` are
positions in one count of everything that happened, so "after the response had come" is a comparison of numbers. An
operation without a response has no `code` (None), because it may have happened or not.

Every value that a producer sends, and every mark that a committer leaves as metadata of an offset, is unique in its
run, so a value that is read identifies the client that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from pykbroker_wire.records.control import ControlType

#: topic and partition
Place = tuple[str, int]


def place_name(place: Place) -> str:
    """Return `topic-partition`, as Kafka's tools print it."""
    topic, partition = place
    return f"{topic}-{partition}"


OK = 0


@dataclass(slots=True, kw_only=True)
class Event:
    """An event; History.record sets `ended`."""

    started: int
    code: int | None
    client: str = ""
    ended: int = -1


@dataclass(slots=True, kw_only=True)
class Identified(Event):
    """The InitProducerId of a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Produced(Event):
    """One attempt at one batch. `transaction` is the client's name of its transaction."""

    place: Place
    producer_id: int
    epoch: int
    sequence: int
    values: tuple[bytes, ...]
    transactional_id: str | None = None
    transaction: str | None = None
    base_offset: int = -1
    #: 1 for the first; a later one may be answered as a repetition of an earlier one
    attempt: int = 1
    #: with acks 1 an acknowledged batch may be lost when the leader changes
    acks: int = -1


@dataclass(slots=True, kw_only=True)
class Ended(Event):
    """One attempt at EndTxn."""

    transaction: str
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    attempt: int = 1


@dataclass(slots=True, kw_only=True)
class Read(Event):
    """One fetch of one partition, with the position of the next one. Records are (offset, value). `server` is the
    broker that answered, the number of its life, and the leader epoch in which it led during the fetch (-1 if it did
    not)."""

    server: tuple[int, int, int] = (0, 0, -1)
    place: Place
    committed_only: bool
    position: int
    next_position: int
    records: tuple[tuple[int, bytes], ...]
    high_watermark: int
    last_stable_offset: int


@dataclass(slots=True, kw_only=True)
class CommittedOffset(Event):
    """One attempt at OffsetCommit or TxnOffsetCommit of one partition."""

    group: str
    place: Place
    offset: int
    mark: str
    transaction: str | None = None
    member: str = ""
    generation: int = -1


@dataclass(slots=True, kw_only=True)
class FetchedOffset(Event):
    """A committed offset, or `offset` -1 if there was none. `was_replaced` means that the node that answered was no
    longer the coordinator, and may not have known it. As in Apache Kafka it then answers from what it has: only a
    commit shows whether it is still the coordinator."""

    group: str
    place: Place
    offset: int
    mark: str
    stable: bool = False
    was_replaced: bool = False


@dataclass(slots=True, kw_only=True)
class Joined(Event):
    """A JoinGroup that was answered with a generation. `was_replaced` means that the node was no longer the coordinator
    and did not know that yet. It writes nothing of this generation, so its successor begins the same generation
    again."""

    group: str
    member: str
    generation: int
    leader: str
    instance: str | None = None
    was_replaced: bool = False


@dataclass(slots=True, kw_only=True)
class Forgot(Event):
    """A node went down and came back, or its coordinators began again in another leader epoch: what they had not
    written is lost."""

    node: int


@dataclass(slots=True, kw_only=True)
class Synced(Event):
    """A SyncGroup that was answered with partitions."""

    group: str
    member: str
    generation: int
    partitions: frozenset[Place]
    instance: str | None = None


@dataclass(slots=True, kw_only=True)
class Beat(Event):
    """A ConsumerGroupHeartbeat: the partitions that the member sent as owned, and its new assignment (None for no
    change)."""

    group: str
    member: str
    sent_epoch: int
    epoch: int
    owned: frozenset[Place]
    assigned: frozenset[Place] | None


@dataclass(slots=True, kw_only=True)
class Delivered(Event):
    """The records of one partition that a member of a share group was given. `ranges` are first offset, last offset and
    delivery count; `records` are (offset, value) of each record in them."""

    group: str
    member: str
    place: Place
    ranges: tuple[tuple[int, int, int], ...]
    records: tuple[tuple[int, bytes], ...]


@dataclass(slots=True, kw_only=True)
class Acknowledged(Event):
    """The acknowledgements of a member of a share group for one partition: (offset, type)."""

    group: str
    member: str
    place: Place
    types: tuple[tuple[int, int], ...]


@dataclass(slots=True, kw_only=True)
class ShareReset(Event):
    """A reset of the offsets of a share group for one partition, with all tries. `offset` is None if its state was
    deleted, so that the group begins anew."""

    group: str
    place: Place
    offset: int | None


E = TypeVar("E", bound=Event)


class History:
    """Events in the order of their ends."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._count = 0

    def now(self) -> int:
        """Return a position in the order; each call returns a later one."""
        self._count += 1
        return self._count

    def record(self, event: E) -> E:
        event.ended = self.now()
        self.events.append(event)
        return event

    def without_group(self, group: str) -> History:
        """Return a copy in which no client fetched a group's offsets."""
        copy = History()
        copy.events = [event for event in self.events if not isinstance(event, FetchedOffset) or event.group != group]
        return copy

    def without_before(self, client: str) -> History:
        """Return a copy that begins with the first event of a client."""
        copy = History()
        first = next(index for index, event in enumerate(self.events) if event.client == client)
        copy.events = self.events[first:]
        return copy

    def of(self, kind: type[E]) -> Iterator[E]:
        return (event for event in self.events if isinstance(event, kind))


@dataclass(slots=True, kw_only=True)
class Batch:
    """A batch in a log."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    marker: ControlType | None = None
    coordinator_epoch: int = -1
    timestamp: int = 0
    values: tuple[bytes, ...] = ()

    def records(self) -> Iterator[tuple[int, bytes]]:
        for number, value in enumerate(self.values):
            yield self.base_offset + number, value


Log = list[Batch]


@dataclass(slots=True)
class Fate:
    """The outcome of the transactional batches of one log: for the position of a batch in it, the marker that ended its
    transaction."""

    log: Log
    markers: dict[int, Batch] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Log) -> Fate:
        fate = cls(log)
        open_batches: dict[int, list[int]] = {}
        for index, batch in enumerate(log):
            if batch.marker is not None:
                for earlier in open_batches.pop(batch.producer_id, ()):
                    fate.markers[earlier] = batch
            elif batch.is_transactional:
                open_batches.setdefault(batch.producer_id, []).append(index)
        return fate

    def is_committed(self, index: int) -> bool:
        if not self.log[index].is_transactional:
            return True
        marker = self.markers.get(index)
        return marker is not None and marker.marker is ControlType.COMMIT

    def is_undecided(self, index: int) -> bool:
        batch = self.log[index]
        return batch.is_transactional and batch.marker is None and index not in self.markers
