"""Segments as a stream: each batch goes on where the one before ended, up to what is safe to read by then.

Responsible for the offsets of a stream, as Spark keeps them in its checkpoint. Not responsible for reading them.

Invariants: offsets never go back; what the checkpoint says has been read is not looked at again; records that retention
deleted before they were read are an error, unless `failOnDataLoss` is false.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_pykbroker.bounds import Bounds, bounds_of
from pyspark_pykbroker.directories import Replica
from pyspark_pykbroker.faults import RecordsLost
from pyspark_pykbroker.pieces import Piece
from pyspark_pykbroker.ranges import Range, fit, look, resolve
from pyspark_pykbroker.source_options import Offsets, SourceOptions, TopicPartition
from pyspark_pykbroker.splitting import split
from pyspark_pykbroker.worker_imports import keep_one_importer_of_each_archive

if TYPE_CHECKING:
    import pyarrow as pa

#: As Spark stores it: topic -> partition -> the next offset.
Stored = dict[str, dict[str, int]]


def stored(offsets: Offsets) -> Stored:
    found: Stored = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def offsets_of(given: Stored | str) -> dict[TopicPartition, int]:
    topics: Stored = json.loads(given) if isinstance(given, str) else given
    return {(topic, int(number)): offset for topic, numbers in topics.items() for number, offset in numbers.items()}


class SegmentStreamReader(DataSourceStreamReader):
    """Lives in one process beside the driver; `read` runs on executors."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        #: up to where batches have been planned; None before the first one of this run
        self._planned: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> Stored:
        replicas, bounds = self._look()
        starts = resolve(self._options, "starting", self._options.starting, replicas, bounds)
        self._planned = starts
        return stored(starts)

    def latestOffset(self) -> Stored:
        replicas, bounds = self._look()
        ends = resolve(self._options, "ending", self._options.ending, replicas, bounds)
        ends = {key: min(end, bounds[key].end) for key, end in ends.items()}
        if self._planned is not None:
            # New partitions are read from their beginning.
            starts = {key: self._planned.get(key, bounds[key].start) for key in ends}
            ends = {key: max(end, starts[key]) for key, end in ends.items()}
            if self._options.max_offsets_per_trigger:
                ends = share(starts, ends, self._options.max_offsets_per_trigger)
            ends |= {key: offset for key, offset in self._planned.items() if key not in ends}
        return stored(ends)

    def partitions(self, start: Stored, end: Stored) -> list[Piece]:
        starts, ends = offsets_of(start), offsets_of(end)
        self._planned = ends
        if starts == ends:
            return []
        replicas, bounds = self._look()
        ranges = []
        for key, last in ends.items():
            if key not in replicas:
                if (first := starts.get(key, 0)) < last:
                    raise RecordsLost(
                        f"{key[0]}-{key[1]} is gone, its offsets from {first} to {last - 1} were not read: the topic "
                        "was deleted, or a directory is missing in the options"
                    )
                continue
            first = starts.get(key, bounds[key].start)
            # What was safe once stays so, whatever a checkpoint of a broker that has come back says.
            reach = Bounds(bounds[key].start, max(bounds[key].end, last))
            first, last = fit(replicas[key], first, last, reach, fail=self._options.fail_on_data_loss)
            if first < last:
                ranges.append(Range(replicas[key], first, last))
        return split(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_pykbroker.piece_reader import read_piece

        keep_one_importer_of_each_archive()
        assert isinstance(partition, Piece), partition
        return read_piece(partition, self._names, self._options)

    def _look(self) -> tuple[dict[TopicPartition, Replica], dict[TopicPartition, Bounds]]:
        replicas = look(self._options)
        return replicas, {key: bounds_of(replica, self._options.isolation) for key, replica in replicas.items()}


def share(starts: Offsets, ends: Offsets, most: int) -> dict[TopicPartition, int]:
    """Ends such that about `most` offsets lie before them, of each partition in proportion to what it has; at least one
    of each that has any."""
    sizes = {key: max(0, end - starts[key]) for key, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    return {key: starts[key] + min(size, -(-size * most // total)) for key, size in sizes.items()}
