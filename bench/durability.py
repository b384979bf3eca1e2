"""Appends that wait for the disk, and a long write that must not.

flush.messages=1 makes every response wait for an fsync. The device limits its speed, so the device's own fsync is
measured next to each load, in the directory of the broker: 300 more bytes in a file, and fdatasync. The same loads
without flush show the cost of an append without it.

The long write is larger than the page cache can absorb, so dirty pages must go to the device while requests are
answered. It writes 250 MB for each of `--seconds`: `--seconds 40` are 10 GB.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench import raw
from bench.measurements import Figure, Measure, Measurement, new_topic
from bench.servers import Server

#: The number of fsyncs of a device that are timed; the figure is the median.
_PROBES = 200
_LONG_WRITE_BYTES_PER_SECOND = 250_000_000
_UNBOUNDED_SECONDS = 3600.0


def device_fsync_seconds(folder: Path) -> float:
    """Return the seconds of one fdatasync after a small append, measured here and now."""
    path = folder / "fsync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    times = []
    try:
        for number in range(_PROBES):
            os.pwrite(fd, bytes(300), number * 300)
            begin = time.perf_counter()
            os.fdatasync(fd)
            times.append(time.perf_counter() - begin)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(times)


def _produce(producers: int, partitions: int, in_flight: int, **configs: str) -> Measure:
    def measure(server: Server, seconds: float) -> dict[str, float]:
        _, topic_id = new_topic(server, partitions, **configs)

        def load(duration: float) -> raw.Load:
            return raw.produce(
                server.address,
                topic_id,
                connections=producers,
                partitions=partitions,
                in_flight=in_flight,
                records=1,
                value_bytes=100,
                seconds=duration,
            )

        load(1.0)
        fsync = device_fsync_seconds(server.directory)
        cpu = server.cpu_seconds()
        found = load(seconds)
        measured = {"throughput": found.requests_per_second}
        if found.latencies:
            measured |= {"p50": found.percentile(0.5) * 1e6, "p99": found.percentile(0.99) * 1e6}
        return {
            **measured,
            "device's fsync, µs": fsync * 1e6,
            "broker CPU, µs/request": (server.cpu_seconds() - cpu) / found.requests * 1e6,
            "driver, share of a core": found.driver_share,
        }

    return measure


def _long_write(server: Server, seconds: float) -> dict[str, float]:
    _, topic_id = new_topic(server)
    found = raw.produce(
        server.address,
        topic_id,
        connections=4,
        partitions=1,
        in_flight=1,
        records=90,
        value_bytes=10_000,
        seconds=_UNBOUNDED_SECONDS,
        max_bytes=int(seconds * _LONG_WRITE_BYTES_PER_SECOND),
    )
    return {
        "throughput": found.megabytes_per_second,
        "p50": found.percentile(0.5) * 1e3,
        "p99": found.percentile(0.99) * 1e3,
        "slowest, ms": found.percentile(1.0) * 1e3,
        "written, GB": found.bytes / 1e9,
        "driver, share of a core": found.driver_share,
    }


def _figures(target: float, in_flight: int) -> tuple[Figure, ...]:
    # The load measures latencies only with one request in flight.
    latencies = Figure("p50", "µs", more_is_better=False), Figure("p99", "µs", more_is_better=False)
    return Figure("throughput", "req/s", target=target), *(latencies if in_flight == 1 else ())


DURABILITY = [
    Measurement(f"{title}, {flush}", _produce(producers, partitions, in_flight, **configs), _figures(target, in_flight))
    for title, producers, partitions, in_flight, target in (
        ("1 producer", 1, 1, 1, 1.0),
        ("50 producers, 1 partition", 50, 1, 1, 10.0),
        ("50 producers, 50 partitions", 50, 50, 1, 3.0),
        # The default max.in.flight.requests.per.connection of a producer.
        ("50 producers, 5 in flight, 1 partition", 50, 1, 5, 10.0),
        ("50 producers, 5 in flight, 50 partitions", 50, 50, 5, 3.0),
    )
    for flush, configs, target in (
        ("flush off", {}, 1.0),
        ("flush.messages=1", {"flush_messages": "1"}, target),
    )
]
DURABILITY.append(
    Measurement(
        "long write, 900 KB batches, 4 producers",
        _long_write,
        (
            Figure("throughput", "MB/s", target=1),
            Figure("p50", "ms", more_is_better=False),
            Figure("p99", "ms", more_is_better=False, target=1),
        ),
    )
)
