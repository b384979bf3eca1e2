"""The evidence of a run, by which claims are judged: effects, records, commits and assignments.

Responsible for reading topics as a consumer with `read_committed` would, without a client. Not responsible for what
must hold (claims.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykbroker.replica.partition import Partition
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.checking.conversations import Assigned, Commit, Conversations, Place
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from pykbroker_worlds.simulated.world import EPOCH_MS


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that an application did: `seconds` since the world began, its name, and what `did` was given."""

    seconds: float
    app: str
    what: str
    key: Any


class StoredRecord(NamedTuple):
    """A record in the log of a topic. `headers` are pairs of a name and a value."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a claim compares: an effect, or a record. `place` and `offset` are those of a record."""

    key: Any
    seconds: float
    #: for a person, without its time
    text: str
    app: str | None = None
    place: Place | None = None
    offset: int = -1
    #: what the records of one order have in common: their key, or their partition if they have none
    order: Any = None

    def __str__(self) -> str:
        return f"{self.seconds:10.3f}  {self.text}"


#: Reads the key of a record.
KeyOf = Callable[[StoredRecord], Any]


def text_of(record: StoredRecord) -> str:
    """Return the value of a record as text."""
    return (record.value or b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Did:
    """The things that applications did: the effects of `world.did(what, key)` and `rows.did(what, key)`."""

    what: str

    def facts(self, evidence: Evidence) -> list[Fact]:
        return [
            Fact(effect.key, effect.seconds, f"{effect.app} {effect.what} {effect.key!r}", effect.app)
            for effect in evidence.effects
            if effect.what == self.what
        ]

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a topic, without those of aborted transactions. `key` gives the key by which a record is compared
    with effects and other records, by default its value as text."""

    topic: str
    key: KeyOf = field(default=text_of, repr=False)

    def facts(self, evidence: Evidence) -> list[Fact]:
        """Return facts in the order of partitions and offsets."""
        facts = []
        for record in evidence.records(self.topic):
            key, place = self.key(record), (record.topic, record.partition)
            text = f"{record.topic}-{record.partition} has {key!r} at offset {record.offset}"
            seconds = (record.timestamp_ms - EPOCH_MS) / 1000
            order = place if record.key is None else record.key
            facts.append(Fact(key, seconds, text, None, place, record.offset, order))
        return facts

    def __str__(self) -> str:
        return f"records of {self.topic}"


@dataclass(frozen=True, slots=True, init=False)
class AnyOf:
    """The facts of several sources: `AnyOf(Did("billed"), Records("dead-letters"))`."""

    sources: tuple[Did | Records, ...]

    def __init__(self, *sources: Did | Records) -> None:
        object.__setattr__(self, "sources", sources)

    def facts(self, evidence: Evidence) -> list[Fact]:
        """Return facts in the order of their times."""
        found = [fact for source in self.sources for fact in source.facts(evidence)]
        return sorted(found, key=lambda fact: fact.seconds)

    def __str__(self) -> str:
        return " or ".join(map(str, self.sources))


Source = Did | Records | AnyOf


class Evidence:
    """All of it, at one moment of a world."""

    def __init__(
        self,
        effects: Sequence[Effect],
        conversations: Conversations,
        logs: Mapping[Place, Sequence[StoredRecord]],
        seconds: float,
        until: float = math.inf,
    ) -> None:
        """`logs`: the records of each partition, without aborted ones. `seconds`: the virtual time now. `until`: what
        is asked for later may still be on its way at the end, because applications go on."""
        self.effects = effects
        self.commits: Sequence[Commit] = conversations.commits
        self.assignments: Sequence[Assigned] = conversations.assignments
        self.seconds = seconds
        self.until = until
        self._logs = logs

    def records(self, topic: str) -> Iterator[StoredRecord]:
        for place in sorted(self._logs):
            if place[0] == topic:
                yield from self._logs[place]


def logs_of(cluster: SimCluster, topics: Callable[[str], bool]) -> dict[Place, list[StoredRecord]]:
    """Read the committed records of each partition whose topic is one of `topics`, from its leader. A partition that
    has none is left out."""
    found = {}
    for node in cluster.brokers.values():
        if not node.up:
            continue
        for partition in node.led():
            if topics(partition.topic):
                found[partition.topic, partition.index] = list(_records_of(partition))
    return found


def _records_of(partition: Partition) -> Iterator[StoredRecord]:
    undecided: dict[int, list[StoredRecord]] = {}
    decided: list[StoredRecord] = []
    for data in _batches_of(partition.log):
        for position, header in iter_batches(data):
            records = list(iter_records(data, position, header))
            if header.is_control:
                ended = undecided.pop(header.producer_id, [])
                if parse_control(records[0]).type is ControlType.COMMIT:
                    decided += ended
                continue
            kept = undecided.setdefault(header.producer_id, []) if header.is_transactional else decided
            kept += [
                StoredRecord(
                    partition.topic,
                    partition.index,
                    record.offset,
                    record.timestamp,
                    _bytes(record.key),
                    _bytes(record.value),
                    tuple((name, _bytes(value)) for name, value in record.headers),
                )
                for record in records
            ]
    return iter(sorted(decided, key=lambda record: record.offset))


def _batches_of(log: PartitionLog) -> Iterator[bytes]:
    offset = log.local_log_start_offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20, log.high_watermark)
        if found.next_offset <= offset:
            return
        yield found.joined()
        offset = found.next_offset


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
