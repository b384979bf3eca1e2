"""Segments as a stream: each batch begins where the one before ended, and ends where records are safe to read by then.

Responsible for where a stream begins, continues and ends. Not responsible for its form in the checkpoint (places.py),
nor for reading.

Invariants:
* Offsets never go back within a topic; records that were read by the checkpoint are not read again.
* Records that are gone before they were read are an error, unless `failOnDataLoss` is false. Retention deleted them, or
  their topic was deleted, also if a topic of the same name was created again.
* Spark asks a new stream for its end before its beginning; both answers come from one beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_pykbroker.bounds import Bounds, bounds_of
from pyspark_pykbroker.directories import Replica, choose, find_replicas, has_mark_of_its_own
from pyspark_pykbroker.faults import RecordsLost, message_first
from pyspark_pykbroker.pieces import Piece
from pyspark_pykbroker.places import Place, Stored
from pyspark_pykbroker.ranges import Range, fit, resolve
from pyspark_pykbroker.source_options import Offsets, SourceOptions, TopicPartition
from pyspark_pykbroker.splitting import split
from pyspark_pykbroker.worker_imports import keep_one_importer_of_each_archive

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Replicas = dict[TopicPartition, Replica]


class SegmentStreamReader(DataSourceStreamReader):
    """Runs in one process next to the driver; `read` runs on executors."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        #: the beginning of a new stream, after the first request for it
        self._initial: Place | None = None
        #: the end of the planned batches. Spark passes it to a stream with a checkpoint before its first request.
        self._planned: Place | None = None
        #: the partitions and topic ids that a warning has named
        self._told_gone: Set[TopicPartition] = frozenset()
        self._told_ids: set[tuple[str, str]] = set()

    def initialOffset(self) -> Stored:
        with message_first():
            return self._beginning().encode()

    def latestOffset(self) -> Stored:
        with message_first():
            return self._latest()

    def partitions(self, start: Stored, end: Stored) -> list[Piece]:
        with message_first():
            return self._planned_pieces(Place.decode(start), Place.decode(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_pykbroker.piece_reader import read_piece

        keep_one_importer_of_each_archive()
        assert isinstance(partition, Piece), partition
        with message_first():
            yield from read_piece(partition, self._names, self._options)

    def _latest(self) -> Stored:
        planned = self._planned = self._planned or self._beginning()
        replicas = self._look(planned)
        remade = self._remade(planned, replicas.values())
        waiting = {each.topic for each in replicas.values() if each.topic in remade and not _may_begin(each)}
        replicas = {key: replica for key, replica in replicas.items() if replica.topic not in waiting}
        bounds = self._bounds(replicas)
        limit = self._options.ending.without(planned.offsets.keys() - replicas.keys())
        ends = resolve(self._options, "ending", limit, replicas, bounds)
        planned = planned.without(remade - waiting)
        # New partitions, and those of a topic that was created again, are read from their beginning.
        starts = {key: planned.offsets.get(key, bounds[key].start) for key in ends}
        ends = {key: max(min(end, bounds[key].end), starts[key]) for key, end in ends.items()}
        if self._options.max_offsets_per_trigger:
            ends = share(starts, ends, self._options.max_offsets_per_trigger)
        found = Place.of(ends, replicas.values())
        return Place({**planned.offsets, **ends}, {**planned.topic_ids, **found.topic_ids}).encode()

    def _planned_pieces(self, starts: Place, ends: Place) -> list[Piece]:
        self._planned = ends
        if starts == ends:
            return []
        replicas = self._look(ends)
        remade = self._remade(ends, replicas.values())
        # A batch that was planned in a deleted topic is empty.
        replicas = {key: replica for key, replica in replicas.items() if replica.topic not in remade}
        starts = starts.without(self._remade(starts, replicas.values()))
        bounds = self._bounds(replicas)
        ranges = []
        for key, last in ends.offsets.items():
            if key not in replicas:
                continue
            first = starts.offsets.get(key, bounds[key].start)
            # Offsets that were once safe stay so, even if the checkpoint of a restarted broker is older.
            reach = Bounds(bounds[key].start, max(bounds[key].end, last))
            first, last = fit(replicas[key], first, last, reach, fail=self._options.fail_on_data_loss)
            if first < last:
                ranges.append(Range(replicas[key], first, last))
        return split(ranges, self._options)

    def _beginning(self) -> Place:
        if self._initial is None:
            replicas = self._look(self._planned)
            absent = self._planned.offsets.keys() - replicas.keys() if self._planned else frozenset()
            limit = self._options.starting.without(absent)
            starts = resolve(self._options, "starting", limit, replicas, self._bounds(replicas))
            self._initial = Place.of(starts, replicas.values())
        return self._initial

    def _look(self, place: Place | None) -> Replicas:
        """Return the replicas to read for a stream that is at `place`. Raises RecordsLost if partitions of it are gone,
        and the errors of `find_replicas` and `choose`."""
        found = find_replicas(self._options.directories)
        subscription = self._options.subscription
        gone = place.offsets.keys() - found.keys() if place is not None else frozenset()
        if place is not None and gone:
            (topic, partition), *others = sorted(gone)
            self._lose(
                f"{topic}-{partition} is gone{f' and {len(others)} more partitions are' if others else ''}: the topic "
                "was deleted, or a directory is missing in the options. The stream was at its offset "
                f"{place.offsets[topic, partition]}",
                is_told=gone <= self._told_gone,
            )
            topics = {topic for topic, _ in gone}
            whole = {topic for topic in topics if _is_whole(topic, found)}
            if not subscription.partitions:
                # Folders are deleted and created one by one.
                found = {key: replicas for key, replicas in found.items() if key[0] not in topics - whole}
            subscription = subscription.without(topics - whole, gone)
        self._told_gone = gone
        return choose(subscription, found)

    def _remade(self, place: Place, replicas: Iterable[Replica]) -> set[str]:
        """Return the topics whose id is not that of `place`. Raises RecordsLost if there are any and that is an
        error."""
        ids = {replica.topic: replica.topic_id for replica in replicas if place.is_in_another(replica)}
        for topic, new in ids.items():
            self._lose(
                f"{topic} was deleted and made again (its id was {place.topic_ids[topic]}, now it is "
                f"{new or 'not known'}): what was not read of the old one is lost, the new one begins at its start",
                is_told=(topic, new) in self._told_ids,
            )
            self._told_ids.add((topic, new))
        return set(ids)

    def _lose(self, text: str, *, is_told: bool) -> None:
        if self._options.fail_on_data_loss:
            raise RecordsLost(f"{text}. Begin with a new checkpoint, or set failOnDataLoss to false to go on.")
        if not is_told:
            logger.warning("%s", text)

    def _bounds(self, replicas: Mapping[TopicPartition, Replica]) -> dict[TopicPartition, Bounds]:
        return {key: bounds_of(replica, self._options.isolation) for key, replica in replicas.items()}


def _is_whole(topic: str, found: Mapping[TopicPartition, object]) -> bool:
    """Return True if there are partitions, and none before the last one is missing."""
    numbers = sorted(number for name, number in found if name == topic)
    return numbers != [] and numbers == list(range(len(numbers)))


def _may_begin(replica: Replica) -> bool:
    """Return True if the id and the safe end of a topic that was created again are known."""
    return replica.topic_id != "" and replica.high_watermark is not None and has_mark_of_its_own(replica)


def share(starts: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """Return ends such that about `most` offsets lie before them, in proportion to the size of each partition. Each
    partition that has any offset gets at least one."""
    sizes = {key: max(0, end - starts[key]) for key, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    return {key: starts[key] + min(size, -(-size * most // total)) for key, size in sizes.items()}
