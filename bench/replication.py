"""acks=all over three replicas, and the time in which a node that was stopped catches up.

Each producer has its own partition, led by the nodes in turn, and one request in flight or five (a producer's default).

A node that starts again fetches the records that were written in the meantime. The rate is that of the bytes in its
files, from the first that arrive to the last. It does not include the start of the process; the time until the node is
in sync does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import raw
from bench.clusters import THREE_NODES, Cluster
from bench.measurements import Figure, Measurement

PIPELINED = 5
BEHIND_BYTES_PER_SECOND = 250_000_000
_UNBOUNDED_SECONDS = 3600.0
_SAMPLE_SECONDS = 0.01
_GIVE_UP_SECONDS = 300.0

REPLICATION: list[Measurement] = []

ClusterMeasure = Callable[[Cluster, float], dict[str, float]]


def _produce(producers: int, in_flight: int, records: int, value_bytes: int, unit: str) -> ClusterMeasure:
    def measure(cluster: Cluster, seconds: float) -> dict[str, float]:
        topic = cluster.spread_topic(producers)

        def load(duration: float) -> raw.Load:
            return raw.produce(
                topic.leaders,
                topic.topic_id,
                connections=producers,
                in_flight=in_flight,
                records=records,
                value_bytes=value_bytes,
                seconds=duration,
            )

        load(1.0)
        cpu = cluster.cpu_seconds()
        found = load(seconds)
        measured = {
            "throughput": found.megabytes_per_second if unit == "MB/s" else found.requests_per_second,
            "CPU of three nodes, µs/request": (cluster.cpu_seconds() - cpu) / found.requests * 1e6,
            "driver, share of a core": found.driver_share,
        }
        if found.latencies:
            measured |= {"p50": found.percentile(0.5) * 1e3, "p99": found.percentile(0.99) * 1e3}
        return measured

    return measure


for _batch, _records, _value_bytes, _unit in (
    ("1 x 100 B", 1, 100, "req/s"),
    ("100 x 100 B", 100, 100, "req/s"),
    ("900 KB of 10 KB records", 90, 10_000, "MB/s"),
):
    for _producers in (1, 3, 50):
        for _in_flight in (1, PIPELINED):
            # With one request in flight from each of them, 45 MB are in flight already.
            if _unit == "MB/s" and _producers == 50 and _in_flight > 1:
                continue
            _figures = [Figure("throughput", _unit, target=1.3 if _in_flight > 1 else 1)]
            if _in_flight == 1:
                _figures += [Figure(name, "ms", more_is_better=False) for name in ("p50", "p99")]
            _who = "1 producer" if _producers == 1 else f"{_producers} producers"
            REPLICATION.append(
                Measurement(
                    f"three nodes, acks=all, {_batch}, {_who}, {_in_flight} in flight",
                    _produce(_producers, _in_flight, _records, _value_bytes, _unit),
                    tuple(_figures),
                    kind=THREE_NODES,
                )
            )


def log_bytes(folders: Sequence[Path]) -> int:
    """Return the size of all segments in the folders of partitions."""
    return sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))


def rate(samples: Sequence[tuple[float, int]]) -> float:
    """Return bytes per second of (seconds, bytes), from the last sample before the growth to the first with all bytes.

    Raises ValueError if they never grow."""
    first, last = samples[0][1], samples[-1][1]
    if first == last:
        raise ValueError("the samples do not grow")
    begin = max(at for at, size in samples if size == first)
    end = min(at for at, size in samples if size == last)
    return (last - first) / (end - begin)


def _catch_up(records: int, value_bytes: int) -> ClusterMeasure:
    def measure(cluster: Cluster, seconds: float) -> dict[str, float]:
        cluster.start()
        away, partitions = 3, 4
        topic = cluster.new_topic([(1, 2, away), (2, 1, away)] * (partitions // 2))
        # Some records first, so that the node starts again with logs.
        _fill(topic.leaders, topic.topic_id, partitions, records, value_bytes, 10_000_000)
        cluster.in_sync(topic.name)
        cluster.halt(away)
        size = int(seconds * BEHIND_BYTES_PER_SECOND)
        _fill(topic.leaders, topic.topic_id, partitions, records, value_bytes, size)
        wanted = log_bytes([cluster.folder_of(1, topic.name, index) for index in range(partitions)])
        folders = [cluster.folder_of(away, topic.name, index) for index in range(partitions)]
        node = cluster.nodes[away]
        cluster.launch(away)
        begin = time.perf_counter()
        samples = [(begin, log_bytes(folders))]
        while samples[-1][1] < wanted:
            if time.perf_counter() - begin > _GIVE_UP_SECONDS:
                raise TimeoutError(f"{cluster.name}: {samples[-1][1]} of {wanted} bytes after {_GIVE_UP_SECONDS} s")
            time.sleep(_SAMPLE_SECONDS)
            samples.append((time.perf_counter(), log_bytes(folders)))
        cpu = node.cpu_seconds()
        cluster.in_sync(topic.name)
        return {
            "catch-up": rate(samples) / 1e6,
            "in sync after its start": time.perf_counter() - begin,
            "its CPU, start included, s": cpu,
            "fetched, MB": (wanted - samples[0][1]) / 1e6,
        }

    return measure


def _fill(
    leaders: Mapping[int, raw.Address], topic_id: bytes, partitions: int, records: int, value_bytes: int, size: int
) -> None:
    raw.produce(
        leaders,
        topic_id,
        connections=partitions,
        in_flight=2,
        records=records,
        value_bytes=value_bytes,
        seconds=_UNBOUNDED_SECONDS,
        max_bytes=size,
    )


for _batch, _records, _value_bytes in (("900 KB", 90, 10_000), ("16 KB", 16, 1_000)):
    REPLICATION.append(
        Measurement(
            f"three nodes, a node that was away fetches batches of {_batch}",
            _catch_up(_records, _value_bytes),
            (
                Figure("catch-up", "MB/s", target=1.2),
                Figure("in sync after its start", "s", more_is_better=False),
            ),
            fresh=True,
            kind=THREE_NODES,
        )
    )
