"""From options to offsets: the range of each partition that one read covers.

Responsible for the rules of Spark's Kafka source about starting and ending offsets, timestamps and lost data, and for
the plan of a read. Not responsible for the bounds of a log (bounds.py), nor for tasks (splitting.py).

Invariant: with `failOnDataLoss` either every record between the two ends is read, or the plan raises an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_pykbroker.bounds import Bounds, bounds_of
from pyspark_pykbroker.directories import Replica, choose, find_replicas
from pyspark_pykbroker.faults import RecordsLost, WrongOption
from pyspark_pykbroker.log_view import LogView, settled
from pyspark_pykbroker.source_options import EARLIEST, LATEST, Limit, SourceOptions, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets [start, end) of one replica."""

    replica: Replica
    start: int
    end: int


def look(options: SourceOptions) -> dict[TopicPartition, Replica]:
    """Return the replicas to read. Raises the errors of `find_replicas` and `choose`."""
    return choose(options.subscription, find_replicas(options.directories))


def plan(options: SourceOptions) -> list[Range]:
    """Return the ranges of a batch read, without empty ones."""
    replicas = look(options)
    bounds = {key: bounds_of(replica, options.isolation) for key, replica in replicas.items()}
    starts = resolve(options, "starting", options.starting, replicas, bounds)
    ends = resolve(options, "ending", options.ending, replicas, bounds)
    found = []
    for key, replica in replicas.items():
        if starts[key] > ends[key] and not (options.fail_on_data_loss and starts[key] > bounds[key].end):
            raise WrongOption(
                f"{replica.topic}-{replica.partition}: the beginning offset {starts[key]} is after the ending offset "
                f"{ends[key]} (the log has {bounds[key].start} to {bounds[key].end}). Give an end that is not before "
                "the start, or name the other partitions with `assign`."
            )
        start, end = fit(replica, starts[key], ends[key], bounds[key], fail=options.fail_on_data_loss)
        if start < end:
            found.append(Range(replica, start, end))
    return found


def resolve(
    options: SourceOptions,
    which: str,
    limit: Limit,
    replicas: Mapping[TopicPartition, Replica],
    bounds: Mapping[TopicPartition, Bounds],
) -> dict[TopicPartition, int]:
    """Return one end as an offset for each partition. Raises WrongOption, DamagedSegment."""
    if limit.named is not None and limit.named != replicas.keys():
        texts = [f"{topic}-{partition}" for topic, partition in sorted(limit.named ^ replicas.keys())]
        raise WrongOption(
            f"{which} offsets must name every partition that is read and no other; they differ in {', '.join(texts)}"
        )
    return {key: _resolve_one(options, which, limit, replica, bounds[key]) for key, replica in replicas.items()}


def _resolve_one(options: SourceOptions, which: str, limit: Limit, replica: Replica, bounds: Bounds) -> int:
    timestamp = limit.timestamps[replica.key] if limit.timestamps is not None else limit.timestamp
    if timestamp is not None:
        found = settled(replica.folder, lambda: _offset_at(replica.folder, timestamp, bounds))
        if found is not None:
            return found
        if which == "starting" and not options.latest_without_match:
            raise WrongOption(
                f"{replica.topic}-{replica.partition} has no record with a timestamp of {timestamp} or later: with "
                "startingOffsetsByTimestampStrategy=latest such a partition is read from its end"
            )
        return bounds.end
    offset = limit.offsets[replica.key] if limit.offsets is not None else limit.everywhere
    if offset == EARLIEST:
        return bounds.start
    return bounds.end if offset is None or offset == LATEST else offset


def _offset_at(folder: str, timestamp: int, bounds: Bounds) -> int | None:
    for segment in LogView(folder, bounds.start, bounds.end).segments:
        found = segment.offset_at(timestamp, bounds.start, bounds.end)
        segment.release()
        if found is not None:
            return found
    return None


def fit(replica: Replica, start: int, end: int, bounds: Bounds, *, fail: bool) -> tuple[int, int]:
    """Return the part of [start, end) that the log has. Raises RecordsLost if `fail` and a part of it is missing."""
    problem = ""
    if start < bounds.start and start < end:
        problem = f"offsets {start} to {min(bounds.start, end) - 1} are gone (the log begins at {bounds.start})"
    elif end > bounds.end or start > bounds.end:
        problem = f"offset {max(start, end) - 1} was asked for, but records are safe to read only up to {bounds.end}"
    if problem:
        text = f"{replica.topic}-{replica.partition} in {replica.folder}: {problem}"
        if fail:
            raise RecordsLost(f"{text}. Ask for other offsets, or set failOnDataLoss to false to read what there is.")
        logger.warning("%s: reading the offsets that there are", text)
    start = min(max(start, bounds.start), bounds.end)
    return start, max(start, min(end, bounds.end))
