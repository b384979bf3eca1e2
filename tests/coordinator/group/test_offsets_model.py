"""Committed offsets with transactions, compared with a model that keeps the whole log and looks everything up in it.

Plain commits, commits in transactions of several producers, markers, tombstones of every origin and expiry in random
order. After each step the test checks the committed offsets, the undecided ones, and that a reload of the log changes
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykbroker.coordinator.group.offsets import NO_OFFSET, NO_PRODUCER_ID, OffsetAges, Offsets
from pykbroker.coordinator.group.records import encode, offset_record
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_log.jumps import NO_JUMPS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequestTopics
from pykbroker_wire.primitives import ZERO_UUID
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey
from tests.simulation.rebuilt import contents_of_offsets

pytestmark = pytest.mark.slow

GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 1)
PRODUCERS = st.integers(1, 3)
IDS = {"t": b"t" * 16, "u": b"u" * 16}
NOW_MS = 1_000_000
RETENTION_MS = 1_000

Key = tuple[str, str, int]


class Entry(NamedTuple):
    """One record or marker of the log. `offset` is None for a tombstone; only markers have `commit`."""

    key: Key | None
    offset: int | None
    producer: int
    commit: bool | None = None
    committed_ms: int = 0


class Model:
    """The log, without any other state."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    def _decision(self, at: int) -> bool | None:
        producer = self.log[at].producer
        if producer == NO_PRODUCER_ID:
            return True
        return next(
            (entry.commit for entry in self.log[at:] if entry.commit is not None and entry.producer == producer), None
        )

    def _alive(self, key: Key) -> list[tuple[int, Entry]]:
        """Return the places where the key was written after its last tombstone."""
        found = [(at, entry) for at, entry in enumerate(self.log) if entry.key == key]
        tombstones = [at for at, entry in found if entry.offset is None]
        return [(at, entry) for at, entry in found if at > max(tombstones, default=-1)]

    def committed(self, key: Key) -> Entry | None:
        return next((entry for at, entry in reversed(self._alive(key)) if self._decision(at)), None)

    def is_pending(self, key: Key) -> bool:
        return any(self._decision(at) is None for at, _ in self._alive(key))

    def has_open_transaction(self, group: str) -> bool:
        """Return True if the group has an undecided offset. As in Apache Kafka, offsets before a tombstone do not
        count."""
        return any(self.is_pending(key) for key in self.written() if key[0] == group)

    def written(self) -> set[Key]:
        return {entry.key for entry in self.log if entry.key is not None}


class OffsetsAndMarkers(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.offsets = Offsets()
        self.model = Model()
        self.log: list[tuple[CoordinatorRecord, int] | tuple[int, bool]] = []
        self.number = 0

    # -- what is written ----------------------------------------------------------------------------------------------

    def _append(self, record: CoordinatorRecord, producer: int) -> None:
        key = record.key
        assert isinstance(key, OffsetCommitKey)
        assert record.value is None or isinstance(record.value, bytes)
        self.log.append((record, producer))
        self.offsets.replay(key, record.value, len(self.log) - 1, producer)

    def _commit(self, key: Key, producer: int, age_ms: int) -> None:
        self.number += 1
        group, topic, partition = key
        record = offset_record(
            group,
            topic,
            partition,
            offset=self.number,
            leader_epoch=-1,
            metadata="",
            commit_ms=NOW_MS - age_ms,
            expire_ms=-1,
            topic_id=IDS[topic],
        )
        _, value = encode(record)
        self._append(CoordinatorRecord(record.key, value, record.value_version), producer)
        self.model.log.append(Entry(key, self.number, producer, committed_ms=NOW_MS - age_ms))

    def _bury(self, records: list[CoordinatorRecord], expected: set[Key]) -> None:
        found = []
        for record in records:
            key = record.key
            assert isinstance(key, OffsetCommitKey)
            assert record.value is None
            found.append((key.group, key.topic, key.partition))
        assert sorted(found) == sorted(expected)
        for record, named in zip(records, found, strict=True):
            self._append(record, NO_PRODUCER_ID)
            self.model.log.append(Entry(named, None, NO_PRODUCER_ID))

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS, age_ms=st.sampled_from([0, 2_000]))
    def commit(self, group: str, topic: str, partition: int, age_ms: int) -> None:
        self._commit((group, topic, partition), NO_PRODUCER_ID, age_ms)

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS, producer=PRODUCERS, age_ms=st.sampled_from([0, 2_000]))
    def commit_in_transaction(self, group: str, topic: str, partition: int, producer: int, age_ms: int) -> None:
        self._commit((group, topic, partition), producer, age_ms)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end(self, producer: int, commit: bool) -> None:
        self.log.append((producer, commit))
        self.offsets.end_transaction(producer, commit=commit)
        self.model.log.append(Entry(None, None, producer, commit=commit))

    @rule(group=GROUPS, topic=TOPICS, partition=PARTITIONS)
    def delete(self, group: str, topic: str, partition: int) -> None:
        key = group, topic, partition
        there = self.model.committed(key) is not None or self.model.is_pending(key)
        self._bury(self.offsets.delete(group, topic, partition), {key} if there else set())

    def _there(self) -> set[Key]:
        return {key for key in self.model.written() if self.model.committed(key) or self.model.is_pending(key)}

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self._bury(self.offsets.delete_group(group), {key for key in self._there() if key[0] == group})

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        records = self.offsets.delete_topics([(topic, IDS[topic])])
        self._bury(records, {key for key in self._there() if key[1] == topic})

    @rule(group=GROUPS, subscribed=st.booleans())
    def expire(self, group: str, subscribed: bool) -> None:
        records, everything = self.offsets.expire(
            group, OffsetAges(NO_JUMPS, NOW_MS, -1, RETENTION_MS), lambda topic: subscribed and topic == "t"
        )
        expected = set()
        kept = self.model.has_open_transaction(group)
        for key in sorted(key for key in self.model.written() if key[0] == group):
            entry = self.model.committed(key)
            if entry is None:
                continue
            old = NOW_MS - entry.committed_ms >= RETENTION_MS
            if old and not self.model.is_pending(key) and not (subscribed and key[1] == "t"):
                expected.add(key)
            else:
                kept = True
        assert everything == (not kept)
        self._bury(records, expected)

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def what_is_served_is_what_the_log_says(self) -> None:
        for group in ("g", "h"):
            asked = [
                OffsetFetchRequestTopics(name=topic, topic_id=ZERO_UUID, partition_indexes=[0, 1]) for topic in IDS
            ]
            for stable in (False, True):
                answers = self.offsets.fetch(group, asked, require_stable=stable)
                everything = {
                    (topic.name, part.partition_index): part
                    for topic in self.offsets.fetch_all(group, require_stable=stable)
                    for part in topic.partitions
                }
                for topic in answers:
                    for part in topic.partitions:
                        key = group, topic.name, part.partition_index
                        entry = self.model.committed(key)
                        unstable = stable and self.model.is_pending(key)
                        offset = NO_OFFSET if entry is None or unstable else entry.offset
                        code = ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else ErrorCode.NONE
                        assert (part.committed_offset, part.error_code) == (offset, code), key
                        other = everything.get(key[1:])
                        if other is not None:
                            assert (other.committed_offset, other.error_code) == (offset, code), key
                        else:
                            assert entry is None
            assert self.offsets.has_open_transaction(group) == self.model.has_open_transaction(group)

    @invariant()
    def a_reload_changes_nothing(self) -> None:
        fresh = Offsets()
        for at, entry in enumerate(self.log):
            what, second = entry
            if isinstance(what, CoordinatorRecord):
                assert isinstance(what.key, OffsetCommitKey)
                assert what.value is None or isinstance(what.value, bytes)
                fresh.replay(what.key, what.value, at, second)
            else:
                fresh.end_transaction(what, commit=bool(second))
        assert contents_of_offsets(fresh) == contents_of_offsets(self.offsets)


TestOffsetsAndMarkers = OffsetsAndMarkers.TestCase
TestOffsetsAndMarkers.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
