"""The load of a node's replicas as records of the topic `__pykbroker_metrics`: JSON, in the schema of
docs/metrics-topic.md.

Responsible for taking the counts, for charging each replica its share of the CPU, and for the size of a record. Not
responsible for the time of a report, nor for writing the records to their topic (load_reporter.py).

Invariant: one record has at most `MOST_PARTITIONS` partitions, so at most about 150 KB.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pykbroker.replica.replica_traffic import TrafficCounts

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition

METRICS_TOPIC: Final = "__pykbroker_metrics"
#: Readers refuse a newer schema. An added field does not make a new schema.
SCHEMA: Final = 1
MOST_PARTITIONS: Final = 250
#: An append, an answer or an acknowledgement costs about as much as moving this many bytes.
BYTES_OF_A_REQUEST: Final = 65_536


class ReplicaLoad(NamedTuple):
    """The load of one replica in an interval."""

    topic: str
    partition: int
    is_leader: bool
    leader_epoch: int
    replicas: tuple[int, ...]
    #: None if the log has not been opened since the start
    size: int | None
    #: the number of records that the slowest follower lacks; None on a follower, and without followers
    follower_lag: int | None
    counted: TrafficCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The broker and the time of a report. `end_ms` is of the wall clock, `duration_ms` of a clock that never jumps."""

    cluster_id: str
    broker: int
    broker_epoch: int
    rack: str | None
    #: counts the reports of this broker epoch
    sequence: int
    end_ms: int
    duration_ms: int
    #: the configured interval
    interval_ms: int
    #: the CPU time of the loop that serves clients
    cpu_ms: float
    #: the number of reports of this broker epoch that did not get to the topic
    dropped: int


def taken(partitions: Iterable[Partition]) -> list[ReplicaLoad]:
    """Return the load of all replicas since the last call. Each partition must have counters."""
    loads = []
    for partition in partitions:
        traffic, leader, log = partition.traffic, partition.leader, partition.log_if_open
        assert traffic is not None, partition
        lag = None
        if leader is not None and log is not None:
            lag = leader.largest_lag(log.log_start_offset, log.log_end_offset)
        loads.append(
            ReplicaLoad(
                partition.topic,
                partition.index,
                leader is not None,
                partition.leader_epoch,
                () if leader is None else tuple(leader.replicas),
                None if log is None else log.size_bytes,
                lag,
                traffic.take(),
            )
        )
    return loads


def records(interval: Interval, loads: Sequence[ReplicaLoad]) -> Iterator[bytes]:
    """Yield the records of a report, at least one. Each is made when it is needed, because many replicas take time."""
    work = sum(_work(load.counted) for load in loads)
    share = interval.cpu_ms / interval.duration_ms / work if work and interval.duration_ms > 0 else 0.0
    firsts = range(0, len(loads), MOST_PARTITIONS) if loads else range(1)
    for part, first in enumerate(firsts):
        report = {
            "schema": SCHEMA,
            "cluster_id": interval.cluster_id,
            "broker": interval.broker,
            "broker_epoch": interval.broker_epoch,
            "rack": interval.rack,
            "sequence": interval.sequence,
            "part": part,
            "parts": len(firsts),
            "end_ms": interval.end_ms,
            "duration_ms": interval.duration_ms,
            "interval_ms": interval.interval_ms,
            "cpu_ms": round(interval.cpu_ms, 3),
            "dropped": interval.dropped,
            "partitions": [_row(load, share) for load in loads[first : first + MOST_PARTITIONS]],
        }
        yield json.dumps(report, separators=(",", ":")).encode()


def _work(counted: TrafficCounts) -> float:
    """Return a replica's share of the loop's work, in requests. It is an estimate, because no request is measured."""
    requests = (
        counted.produce_requests
        + counted.fetch_requests
        + counted.replication_fetches_in
        + counted.replication_fetches_out
        + counted.share_acknowledges
    )
    moved = counted.bytes_in + counted.bytes_out + counted.replication_bytes_in + counted.replication_bytes_out
    return requests + moved / BYTES_OF_A_REQUEST


def _row(load: ReplicaLoad, share: float) -> dict[str, object]:
    """Return a replica's entry in a record. `share` is the part of one CPU for one unit of work."""
    return {
        "topic": load.topic,
        "partition": load.partition,
        "leader": load.is_leader,
        "leader_epoch": load.leader_epoch,
        "replicas": load.replicas,
        "size": load.size,
        "follower_lag": load.follower_lag,
        **load.counted._asdict(),
        "cpu_share": float(f"{_work(load.counted) * share:.3g}"),
    }
