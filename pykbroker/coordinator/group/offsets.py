"""Committed offsets of all groups of one shard: replayed state and the reads from it.

Responsible for commit, fetch, delete and expiry of offsets, and for commits of transactions that are not decided yet.
Not responsible for permission to commit (the group checks it) nor for when expiry runs (shard.py).

Invariants: `replay` and `end_transaction` are the only mutators. An undecided offset is never served. If a plain commit
and a transaction's commit are for the same partition of a group, the later one in the log wins, whenever the
transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from pykbroker.coordinator.group.records import OFFSET_COMMIT_WITH_EXPIRY_VERSION, decode_offset, offset_tombstone
from pykbroker.coordinator.result import CoordinatorRecord
from pykbroker_log.jumps import Jumps
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykbroker_wire.primitives import ZERO_UUID
from pykbroker_wire.stored.group.offset_commit import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER_ID: Final = -1
NO_OFFSET: Final = -1
NO_EXPIRY: Final = -1


class OffsetAges(NamedTuple):
    """The times by which the offsets of a group expire. `retained_from_ms` is -1 if each offset is kept since its own
    commit."""

    jumps: Jumps
    now_ms: int
    retained_from_ms: int
    retention_ms: int

    def of(self, timestamp_ms: int) -> int:
        """Return the time since the timestamp, in ms."""
        return self.jumps.age_ms(self.now_ms, timestamp_ms)


class CommittedOffset:
    """One committed offset, decoded. `at` is its place in the log."""

    __slots__ = ("at", "value")

    def __init__(self, entry: bytes) -> None:
        self.at = int.from_bytes(entry[:_AT_BYTES], "big")
        self.value: OffsetCommitValue = decode_offset(entry[_AT_BYTES:])

    def is_of(self, topic_id: bytes) -> bool:
        """Return True if the offset was committed for the topic with this id, or if one of the two ids is unknown. The
        name does not decide, because a new topic may have the name of a deleted topic."""
        return topic_id == ZERO_UUID or self.value.topic_id in (topic_id, ZERO_UUID)

    def expired(self, ages: OffsetAges) -> bool:
        value = self.value
        if value.expire_timestamp != NO_EXPIRY:
            return ages.of(value.commit_timestamp) >= value.expire_timestamp - value.commit_timestamp
        since_ms = value.commit_timestamp if ages.retained_from_ms == -1 else ages.retained_from_ms
        return ages.of(since_ms) >= ages.retention_ms


#: The stored form of an offset: its place in the log, and its value as in the log.
_AT_BYTES: Final = 8
_VERSION_END: Final = _AT_BYTES + 2
_WITH_EXPIRY: Final = OFFSET_COMMIT_WITH_EXPIRY_VERSION.to_bytes(2, "big")


_Partitions = dict[int, bytes]
_Topics = dict[str, _Partitions]


class Offsets:
    """The offsets of one shard, by group, topic and partition."""

    __slots__ = ("_by_group", "_open", "_pending")

    def __init__(self) -> None:
        self._by_group: dict[str, _Topics] = {}
        #: producer id -> commits of its open transaction
        self._pending: dict[int, dict[tuple[str, str, int], bytes]] = {}
        #: group -> (topic, partition) -> producers whose open transactions have a commit for it
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}

    # -- replay -------------------------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: bytes | None, at: int, producer_id: int = NO_PRODUCER_ID) -> None:
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            # The tombstone is later in the log than the undecided commit. Therefore the commit is dropped, whether the
            # transaction commits or aborts.
            for producer in self._open.get(key.group, {}).get((key.topic, key.partition), ()):
                self._pending[producer].pop((key.group, key.topic, key.partition), None)
            self._close(key.group, key.topic, key.partition)
        elif producer_id == NO_PRODUCER_ID:
            self._put(key.group, key.topic, key.partition, at.to_bytes(_AT_BYTES, "big") + value)
        else:
            entry = at.to_bytes(_AT_BYTES, "big") + value
            self._pending.setdefault(producer_id, {})[key.group, key.topic, key.partition] = entry
            self._open.setdefault(key.group, {}).setdefault((key.topic, key.partition), set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the marker of a transaction. If `commit`, its commits count from now on, otherwise they are dropped."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group, topic, partition in pending:
            producers = self._open[group][topic, partition]
            producers.discard(producer_id)
            if not producers:
                self._close(group, topic, partition)
        if commit:
            for (group, topic, partition), entry in pending.items():
                before = self._by_group.get(group, {}).get(topic, {}).get(partition)
                # An entry begins with its place in the log, so a later entry compares as greater.
                if before is None or before < entry:
                    self._put(group, topic, partition, entry)

    def _close(self, group: str, topic: str, partition: int) -> None:
        undecided = self._open.get(group)
        if undecided is not None:
            undecided.pop((topic, partition), None)
            if not undecided:
                del self._open[group]

    def partitions_of(self, group: str, topic: str) -> dict[int, bytes]:
        """Return the entries of one topic, to which the bulk load adds (bulk.py). Each is the place in the log, then
        the value."""
        return self._by_group.setdefault(group, {}).setdefault(topic, {})

    def _put(self, group: str, topic: str, partition: int, entry: bytes) -> None:
        topics = self._by_group.get(group)
        if topics is None:
            topics = self._by_group[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = entry

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
            if not topics:
                del self._by_group[group]

    # -- reading ------------------------------------------------------------------------------------------------------

    def groups(self) -> Iterable[str]:
        """Return all groups that have offsets, decided or not."""
        return [*self._by_group, *(group for group in self._open if group not in self._by_group)]

    def sizes(self) -> Iterator[int]:
        """Return the number of decided offsets of each group that has some now, counted one after another. Offsets may
        change in between."""
        return (sum(map(len, topics.values())) for topics in list(self._by_group.values()))

    def count(self) -> int:
        return sum(self.sizes())

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        entry = self._by_group.get(group, {}).get(topic, {}).get(partition)
        return None if entry is None else CommittedOffset(entry)

    def has_open_transaction(self, group: str) -> bool:
        return group in self._open

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        undecided = self._open.get(group)
        return undecided is not None and (topic, partition) in undecided

    def fetch(
        self, group: str, topics: Iterable[OffsetFetchRequestTopics], *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        """Return the offsets of these partitions, in this order; -1 if nothing was committed."""
        by_topic = self._by_group.get(group, {})
        answer: list[OffsetFetchResponseTopics] = []
        for asked in topics:
            by_partition = by_topic.get(asked.name, {})
            partitions: list[OffsetFetchResponsePartitions] = []
            for partition in asked.partition_indexes:
                entry = by_partition.get(partition)
                committed = None if entry is None else CommittedOffset(entry)
                if require_stable and self.is_pending(group, asked.name, partition):
                    partitions.append(_unstable(partition))
                elif committed is None or not committed.is_of(asked.topic_id):
                    partitions.append(
                        OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET)
                    )
                else:
                    partitions.append(_found(partition, committed))
            answer.append(OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
        return answer

    def fetch_all(self, group: str, *, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        """Return all offsets of the group."""
        return [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    _unstable(partition)
                    if require_stable and self.is_pending(group, topic, partition)
                    else _found(partition, CommittedOffset(entry))
                    for partition, entry in partitions.items()
                ],
            )
            for topic, partitions in self._by_group.get(group, {}).items()
        ]

    # -- tombstones: these methods return records and change nothing --------------------------------------------------

    def delete(self, group: str, topic: str, partition: int) -> list[CoordinatorRecord]:
        known = partition in self._by_group.get(group, {}).get(topic, {})
        if not known and not self.is_pending(group, topic, partition):
            return []
        return [offset_tombstone(group, topic, partition)]

    def delete_group(self, group: str) -> list[CoordinatorRecord]:
        keys = [
            (topic, partition)
            for topic, partitions in self._by_group.get(group, {}).items()
            for partition in partitions
        ]
        decided = set(keys)
        keys += (key for key in self._open.get(group, ()) if key not in decided)
        return [offset_tombstone(group, topic, partition) for topic, partition in keys]

    def delete_topics(self, deleted: Iterable[tuple[str, bytes]]) -> list[CoordinatorRecord]:
        """Return tombstones for deleted topics. An offset that was committed for a newer topic of the same name
        stays."""
        ids = dict(deleted)
        records: list[CoordinatorRecord] = []
        for group, topics in self._by_group.items():
            for topic in ids.keys() & topics.keys():
                records += (
                    offset_tombstone(group, topic, partition)
                    for partition, entry in topics[topic].items()
                    if CommittedOffset(entry).is_of(ids[topic])
                )
        seen = {
            (record.key.group, record.key.topic, record.key.partition)
            for record in records
            if isinstance(record.key, OffsetCommitKey)
        }
        for pending in self._pending.values():
            for (group, topic, partition), entry in pending.items():
                if topic in ids and (group, topic, partition) not in seen and CommittedOffset(entry).is_of(ids[topic]):
                    seen.add((group, topic, partition))
                    records.append(offset_tombstone(group, topic, partition))
        return records

    def size(self, group: str) -> int:
        return sum(map(len, self._by_group.get(group, {}).values()))

    def expire(
        self, group: str, ages: OffsetAges, is_subscribed: Callable[[str], bool]
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Return tombstones of expired offsets, and True if the group then has no offsets left."""
        records: list[CoordinatorRecord] = []
        everything = not self.has_open_transaction(group)
        too_early = ages.retained_from_ms != -1 and ages.of(ages.retained_from_ms) < ages.retention_ms
        for topic, partitions in self._by_group.get(group, {}).items():
            if is_subscribed(topic):
                everything = False
                continue
            for partition, entry in partitions.items():
                if (
                    # Before the group's retention is over, only values with their own expiry need to be decoded.
                    not (too_early and entry[_AT_BYTES:_VERSION_END] != _WITH_EXPIRY)
                    and CommittedOffset(entry).expired(ages)
                    and not self.is_pending(group, topic, partition)
                ):
                    records.append(offset_tombstone(group, topic, partition))
                else:
                    everything = False
        return records, everything


def _found(partition: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.value.offset,
        committed_leader_epoch=committed.value.leader_epoch,
        metadata=committed.value.metadata,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
