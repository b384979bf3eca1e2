"""Reads records of topics between two bounds, with kafka-python's consumer.

Responsible for the partitions to read, for the first and the last offset of each, and for the end: a count, an offset,
a time, a signal. Not responsible for parsing the options (`bounds.py`), nor for output.

Invariant: with a group, the offsets of a batch are committed only after the caller asked for the next batch; the caller
prints a batch before it asks for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykbroker.tools.cluster.bounds import BEGINNING, END, STORED, Bound, BoundKind, Extent, first_offset, last_offset
from pykbroker.tools.cluster.client_failure import told_failures
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.record_format import ReadRecord
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition

#: The interval at which a signal is checked.
_POLL_MS = 200
_AT_ONCE = 500
_COMMIT_MS = 1000
_NOTHING_FOR_SECONDS = 3


@dataclass(slots=True, frozen=True)
class WantedRecords:
    """The records to read."""

    topics: Sequence[str]
    #: all if empty
    partitions: Sequence[int] = ()
    first: Bound = BEGINNING
    #: records from here on are not read
    last: Bound = END
    #: None for no limit
    count: int | None = None
    #: at the end of the topic, wait for further records
    follows: bool = False
    #: the records to return; all if None
    wants: Callable[[ReadRecord], bool] | None = None
    #: read as a member of this group, which assigns the partitions, and commit offsets
    group: str | None = None


class _Assigned:
    """The time when the group assigned partitions to this member, or None between two assignments."""

    def __init__(self) -> None:
        self.at: float | None = None

    def listener(self) -> Any:
        from kafka import ConsumerRebalanceListener

        told = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
            def on_partitions_revoked(self, revoked: object) -> None:
                told.at = None

            def on_partitions_assigned(self, assigned: object) -> None:
                told.at = time.monotonic()

        return Listener()


class TopicReader:
    """`for batch in TopicReader(reading, settings).batches(): ...`, then `close()`. Raises AskFailed."""

    def __init__(self, reading: WantedRecords, settings: Mapping[str, Any]) -> None:
        """`settings`: kafka-python's settings, with bootstrap_servers."""
        from kafka import KafkaConsumer

        self._reading = reading
        self._left = reading.count
        self._is_stopped = False
        self._assigned = _Assigned()
        #: partition -> the offset before which it ends
        self._ends: dict[TopicPartition, int] = {}
        #: the first offset of each partition in the last batch
        self._first_of_last: dict[TopicPartition, int] = {}
        #: a partition ends at its first record of this time or later
        self._time_end_ms = reading.last.value if reading.last.kind is BoundKind.TIME else None
        of_group: dict[str, Any] = {"enable_auto_commit": False}
        if reading.group is not None:
            of_group = {
                "group_id": reading.group,
                "enable_auto_commit": True,
                "auto_commit_interval_ms": _COMMIT_MS,
            }
        defaults = {
            # If retention deletes records during the read, the read continues with the first record that is left.
            "auto_offset_reset": "latest" if reading.first == END and reading.group is not None else "earliest",
            "allow_auto_create_topics": False,
            "client_id": "pykbroker-consume",
        }
        with told_failures():
            self._consumer: KafkaConsumer = KafkaConsumer(**{**defaults, **settings, **of_group})

    def stop(self) -> None:
        """End before the next batch; a signal handler may call it."""
        self._is_stopped = True

    def close(self, *, printed_all: bool = True) -> None:
        """Leave the group. `printed_all`: False if the last batch was not printed, so that it is not committed."""
        with told_failures():
            try:
                if self._reading.group is not None and not printed_all:
                    self._commit_before(self._first_of_last)
            finally:
                self._consumer.close(autocommit=printed_all)

    def _commit_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        from kafka import OffsetAndMetadata

        if offsets:
            self._consumer.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()})

    def batches(self) -> Iterator[list[ReadRecord]]:
        """Yield batches of records. Records of one partition are in its order."""
        with told_failures():
            self._begin()
        while not self._is_stopped and self._left != 0 and not self._is_done():
            with told_failures():
                batch = self._polled()
            if batch:
                yield batch

    # -- the beginning ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        reading, consumer = self._reading, self._consumer
        places = [place for topic in reading.topics for place in self._places(topic)]
        if reading.group is not None:
            if not reading.follows:
                self._ends = dict(consumer.end_offsets(places))
            consumer.subscribe(list(reading.topics), listener=self._assigned.listener())
            return
        extents = self._extents(places)
        self._check_in_reach(extents)
        starts = self._starts(extents)
        self._ends = self._stops(extents)
        wanted = [place for place in places if place not in self._ends or starts[place] < self._ends[place]]
        consumer.assign(wanted)
        for place in wanted:
            consumer.seek(place, starts[place])

    def _places(self, topic: str) -> list[TopicPartition]:
        from kafka import TopicPartition

        numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            raise _missing(f"topic {topic} does not exist")
        for number in self._reading.partitions:
            if number not in numbers:
                raise _missing(f"topic {topic} has no partition {number}: it has {len(numbers)}, from 0 on")
        return [TopicPartition(topic, number) for number in sorted(set(self._reading.partitions) or numbers)]

    def _extents(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Extent]:
        beginnings, ends = self._consumer.beginning_offsets(places), self._consumer.end_offsets(places)
        return {place: Extent(beginnings[place], ends[place]) for place in places}

    def _check_in_reach(self, extents: Mapping[TopicPartition, Extent]) -> None:
        """Raise AskFailed if the first offset is greater than the end of every partition. Probably it is a time without
        its @."""
        first = self._reading.first
        most = max(extent.end for extent in extents.values())
        if first.kind is BoundKind.OFFSET and first.value > most:
            raise AskFailed(
                f"offset {first.value} is after the end of every partition, and the greatest end is {most}. "
                f"Write a time in milliseconds as @{first.value}",
                "org.apache.kafka.common.errors.OffsetOutOfRangeException",
            )

    def _starts(self, extents: Mapping[TopicPartition, Extent]) -> dict[TopicPartition, int]:
        first = self._reading.first
        timed = self._at_time(first, extents)
        return {
            place: first_offset(first, extent, stored=self._stored(place), at_time=timed.get(place))
            for place, extent in extents.items()
        }

    def _stored(self, place: TopicPartition) -> int | None:
        if self._reading.first != STORED:
            return None
        found: int | None = self._consumer.committed(place)
        return found

    def _stops(self, extents: Mapping[TopicPartition, Extent]) -> dict[TopicPartition, int]:
        reading = self._reading
        if reading.follows and reading.last == END:
            return {}
        timed = self._at_time(reading.last, extents)
        found = {
            place: last_offset(reading.last, extent, at_time=timed.get(place), follows=reading.follows)
            for place, extent in extents.items()
        }
        return {place: end for place, end in found.items() if end is not None}

    def _at_time(self, bound: Bound, extents: Mapping[TopicPartition, Extent]) -> dict[TopicPartition, int]:
        if bound.kind is not BoundKind.TIME:
            return {}
        found = self._consumer.offsets_for_times(dict.fromkeys(extents, bound.value))
        return {place: one.offset for place, one in found.items() if one is not None and one.offset >= 0}

    # -- the middle ---------------------------------------------------------------------------------------------------

    def _polled(self) -> list[ReadRecord]:
        wants = self._reading.wants
        # A commit covers the whole poll, so a member of a group polls no more records than it may return.
        is_limited = self._left is not None and (wants is None or self._reading.group is not None)
        most = min(_AT_ONCE, self._left or 0) if is_limited else _AT_ONCE
        join_again(self._consumer)
        found = self._consumer.poll(timeout_ms=_POLL_MS, max_records=most)
        self._first_of_last = {place: records[0].offset for place, records in found.items()}
        batch = [record for place, records in found.items() for record in self._within(place, records)]
        if wants is not None:
            batch = list(filter(wants, batch))[: self._left]
        if self._left is not None:
            self._left -= len(batch)
        return batch

    def _within(self, place: TopicPartition, records: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        """Return the records before the end of the partition. If the read ends at a time, that end is the first record
        of this time or later."""
        if self._reading.group is not None:
            # A commit covers the whole poll, so every record of the poll is returned.
            return records
        if place not in self._ends and self._time_end_ms is not None:
            late = next((record for record in records if record.timestamp >= self._time_end_ms), None)
            if late is not None:
                self._ends[place] = late.offset
        end = self._ends.get(place)
        if end is None or not records or records[-1].offset < end:
            return records
        self._consumer.pause(place)
        return [record for record in records if record.offset < end]

    # -- the end ------------------------------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        """Return True if the read of each partition has ended. For a member of a group, only its own partitions
        count."""
        if self._reading.group is not None and (self._reading.follows or not self._is_member()):
            return False
        with told_failures():
            return all(self._has_ended(place) for place in self._consumer.assignment())

    def _has_ended(self, place: TopicPartition) -> bool:
        if self._reading.group is None and place not in self._ends:
            return False
        position: int | None = self._consumer.position(place)
        return position is not None and position >= self._ends.get(place, 0)

    def _is_member(self) -> bool:
        """Return True if the group has assigned partitions to this member. An empty assignment counts only after a
        while, because the first answer of a group may come before its leader knows the topics."""
        assigned_at = self._assigned.at
        if assigned_at is None:
            return False
        return bool(self._consumer.assignment()) or time.monotonic() - assigned_at > _NOTHING_FOR_SECONDS


def _missing(text: str) -> AskFailed:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return AskFailed(text, "org.apache.kafka.common.errors.UnknownTopicOrPartitionException", code)


def join_again(consumer: KafkaConsumer) -> None:
    """Request a join again that kafka-python 3.0.12 has lost. It loses a join that a change of the topic's metadata
    caused, if the poll ends before the join: no code awaits the result, the member sends no heartbeats, and it never
    gets a partition."""
    coordinator = consumer._coordinator
    if coordinator is not None and coordinator.rejoining:
        coordinator.request_rejoin()
