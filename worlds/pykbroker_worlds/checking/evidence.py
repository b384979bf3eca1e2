"""The evidence of a run, by which claims are judged: effects, records, commits and assignments.

Responsible for reading topics as a consumer with `read_committed` would, without a client. Not responsible for what
must hold (claims.py), nor for records that retention or compaction has removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pykbroker.replica.partition import Partition
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.control import ControlType, parse_control
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.checking.conversations import Assigned, Commit, Conversations
from pykbroker_worlds.history.events import Place, place_name
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
    #: what the records of one order have in common: their partition and their key
    order: Any = None


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
    """The records of a topic up to the last stable offset, without those of aborted transactions. `key` gives the key
    by which a record is compared with effects and other records, by default its value as text. A record whose key is
    None is left out."""

    topic: str
    key: KeyOf = field(default=text_of, repr=False)

    def facts(self, evidence: Evidence) -> list[Fact]:
        """Return facts in the order of partitions and offsets. Raises ValueError if `key` does, with the record, and
        NotReadable."""
        facts = []
        for record in evidence.records(self.topic):
            place = (record.topic, record.partition)
            try:
                key = self.key(record)
            except Exception as error:
                where = f"{place_name(place)} at offset {record.offset}"
                raise ValueError(f"the key of a record of {where}: {error!r} for {record!r}") from error
            if key is None:
                continue
            text = f"{place_name(place)} has {key!r} at offset {record.offset}"
            seconds = (record.timestamp_ms - EPOCH_MS) / 1000
            facts.append(Fact(key, seconds, text, None, place, record.offset, (place, record.key)))
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


class NotReadable(Exception):
    """A partition cannot be read now: it has no leader, or its log is being recovered."""


#: For a topic: the records of each partition and the end of its log, or None if there is no such topic. Raises
#: NotReadable.
ReadTopic = Callable[[str], "Mapping[Place, tuple[Sequence[StoredRecord], int]] | None"]


class Evidence:
    """The effects, records, commits and assignments of a world at one moment."""

    def __init__(
        self,
        effects: Sequence[Effect],
        conversations: Conversations,
        read_topic: ReadTopic,
        seconds: float,
        until: float = math.inf,
        ends: dict[Place, int] | None = None,
    ) -> None:
        """`seconds`: the virtual time now. Effects after `until`, and records from `ends` on, need no answer: they are
        of applications that go on after the scenario. `ends` gets the end of each partition that is read for the first
        time."""
        self.effects = effects
        self.commits: Sequence[Commit] = conversations.commits
        self.assignments: Sequence[Assigned] = conversations.assignments
        self.seconds = seconds
        self._until = until
        self._ends = {} if ends is None else ends
        self._read_topic = read_topic
        self._topics: dict[str, list[StoredRecord] | None] = {}
        self._facts: dict[Source, list[Fact]] = {}

    def facts(self, source: Source) -> list[Fact]:
        """Return the facts of a source. Raises NotReadable."""
        if source not in self._facts:
            self._facts[source] = source.facts(self)
        return self._facts[source]

    def records(self, topic: str) -> Sequence[StoredRecord]:
        """Return the records of a topic by partition and offset, none if it does not exist. Raises NotReadable."""
        if topic not in self._topics:
            found = self._read_topic(topic)
            for place, (_, end) in (found or {}).items():
                self._ends.setdefault(place, end)
            self._topics[topic] = None if found is None else [one for place in sorted(found) for one in found[place][0]]
        return self._topics[topic] or []

    def has_topic(self, topic: str) -> bool:
        self.records(topic)
        return self._topics[topic] is not None

    def knows_group(self, group: str) -> bool:
        """Return True if an application was given partitions of this group, or has committed for it."""
        return any(one.group == group for one in self.assignments) or any(one.group == group for one in self.commits)

    def needs_answer(self, fact: Fact) -> bool:
        """Return True if the fact was there when the scenario ended."""
        if fact.place is not None:
            return fact.offset < self._ends.get(fact.place, math.inf)
        return fact.seconds <= self._until


def topics_of(cluster: SimCluster) -> ReadTopic:
    """Return what reads the topics of a cluster from the leaders of their partitions."""

    def read_topic(topic: str) -> Mapping[Place, tuple[Sequence[StoredRecord], int]] | None:
        controller = cluster.leader()
        if controller is None:
            raise NotReadable("the quorum has no leader")
        known = controller.node.loader.image.topics.by_name.get(topic)
        if known is None:
            return None
        leaders: dict[int, Partition] = {}
        for node in cluster.brokers.values():
            for partition in node.led() if node.runs else ():
                if partition.topic == topic and partition.topic_id == known.id:
                    before = leaders.get(partition.index)
                    if before is None or before.leader_epoch < partition.leader_epoch:
                        leaders[partition.index] = partition
        found = {}
        for index in known.partitions:
            if index not in leaders:
                raise NotReadable(f"{topic}-{index} has no leader")
            try:
                log = leaders[index].log
                found[topic, index] = _records_of(leaders[index], log), log.log_end_offset
            except KafkaError as error:
                raise NotReadable(f"{topic}-{index} cannot be read: {error}") from error
        return found

    return read_topic


def _records_of(partition: Partition, log: PartitionLog) -> list[StoredRecord]:
    # Up to the last stable offset each transaction is decided.
    undecided: dict[int, list[StoredRecord]] = {}
    decided: list[StoredRecord] = []
    for data in _batches_of(log):
        for position, header in iter_batches(data):
            records = list(iter_records(data, position, header))
            if header.is_control:
                # Compaction leaves batches of markers without records.
                marker = parse_control(records[0]).type if records else None
                if marker in (ControlType.COMMIT, ControlType.ABORT):
                    ended = undecided.pop(header.producer_id, [])
                    decided += ended if marker is ControlType.COMMIT else []
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
    return sorted(decided, key=lambda record: record.offset)


def _batches_of(log: PartitionLog) -> Iterator[bytes]:
    offset, end = log.local_log_start_offset, log.last_stable_offset
    while offset < end:
        found = log.read(offset, 1 << 20, end)
        if found.next_offset <= offset:
            return
        yield found.joined()
        offset = found.next_offset


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
