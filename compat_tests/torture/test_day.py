"""A day's work in half a minute, with 1,000 partitions, sizes and codecs in random order, bursts, and retention and
compaction while clients read. The node keeps its size, logs no errors, and ends when it is asked to (no SIGBUS).

There is a reader for every kind of segment: at the tail (active), from the beginning (sealed, and retired or replaced
while it reads), and of a compacted topic. Whatever they read is what was written (journal.py).
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests.node import Pykbroker
from compat_tests.topics import Topics
from testkit.ports import steady_port
from testkit.torture.clients import Client, Reader, Writer
from testkit.torture.journal import Journal

PARTITIONS = 1000
BUSY = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
}
SMALL = {"internal.segment.bytes": "262144", "file.delete.delay.ms": "200"}
KINDS = {
    "kept": SMALL,
    "retained": {**SMALL, "retention.bytes": "1000000"},
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05", "segment.ms": "1000"},
}
WRITERS: dict[str, dict[str, dict[str, object]]] = {
    "kept": {"once": {"enable.idempotence": True}, "lz4": {"compression.type": "lz4", "max.in.flight": 1}},
    "retained": {"zstd": {"enable.idempotence": True, "compression.type": "zstd"}, "plain": {"max.in.flight": 1}},
    "compacted": {"keys": {"enable.idempotence": True, "compression.type": "snappy"}},
}


class Bulk(Client):
    """Writes bursts of records of all sizes to all partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str, seed: int, codec: str) -> None:
        super().__init__(f"bulk {codec}", bootstrap)
        self.topic = topic
        self.sent_bytes = 0
        self._rng = random.Random(seed)
        self._codec = codec

    def work(self, stopping: Callable[[], bool]) -> None:
        rng = self._rng
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "compression.type": self._codec, "linger.ms": 20, "log_level": 0}
        )
        noise = rng.randbytes(1 << 20)
        while not stopping():
            for _ in range(rng.choice([10, 100, 500])):
                size = int(min(200_000, rng.lognormvariate(6.5, 1.3)))
                start = rng.randrange(len(noise) - size)
                try:
                    producer.produce(self.topic, noise[start : start + size], partition=rng.randrange(PARTITIONS))
                except BufferError:
                    break
                self.sent_bytes += size
            producer.poll(rng.choice([0, 0.05, 0.2]))
        assert producer.flush(60) == 0


@dataclass(frozen=True)
class Size:
    anonymous_bytes: int
    descriptors: int
    maps: int

    @classmethod
    def of(cls, pid: int) -> Size:
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return cls(
            int(status["RssAnon"].split()[0]) * 1024,
            len(os.listdir(process / "fd")),
            len((process / "maps").read_text().splitlines()),
        )


@pytest.fixture
def node(against: str) -> Iterator[Pykbroker]:
    if against != "pykbroker":
        pytest.skip("this is about our own process")
    made = Pykbroker(BUSY, port=steady_port())
    try:
        yield made.start()
    finally:
        made.close()


def live(node: Pykbroker, seconds: float) -> None:
    topics = Topics(node.bootstrap)
    many = topics.create(partitions=PARTITIONS, config={"retention.bytes": "100000", "segment.bytes": "1048576"})
    clients: list[Client] = [Bulk(node.bootstrap, many, number, codec) for number, codec in enumerate(["none", "zstd"])]
    writers: list[Writer] = []
    readers: list[Reader] = []
    for kind, config in KINDS.items():
        topic = topics.create(config=config)
        journal = Journal(kind, compacted=kind == "compacted", shrinks=kind == "retained")
        for name, settings in WRITERS[kind].items():
            keys = 50 if kind == "compacted" else 0
            writers.append(Writer(name, node.bootstrap, journal, topic, settings=settings, keys=keys))
        readers += [Reader(node.bootstrap, journal, topic, seed=number) for number in range(2)]
    clients += [*writers, *readers]
    for client in clients:
        client.start()
    sizes: list[Size] = []
    until = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < until:
        for client in clients:
            client.check()
        sizes.append(Size.of(node.pid))
        pause.wait(0.2)
    for client in clients:
        client.ask_to_stop()
    for client in clients:
        client.join(90)
        assert not client.is_alive(), client.name
        client.check()
    assert all(writer.progress > 100 for writer in writers)
    assert all(reader.count > 100 for reader in readers)
    check_sizes(sizes)
    sent = sum(client.sent_bytes for client in clients if isinstance(client, Bulk)) / 1e6
    print(
        f"{seconds:.0f} s: {sent:.0f} MB over {PARTITIONS} partitions, {sum(r.count for r in readers)} records read, "
        f"at first {sizes[0]}, at last {sizes[-1]}"
    )


def check_sizes(sizes: list[Size]) -> None:
    """Check that the last third is no larger than the second, except for random effects of a garbage collector."""
    third = len(sizes) // 3
    before, after = sizes[third : 2 * third], sizes[2 * third :]
    memory_before, memory_after = (statistics.median(size.anonymous_bytes for size in part) for part in (before, after))
    assert memory_after < 1.25 * memory_before + (24 << 20), f"grew from {memory_before} to {memory_after} bytes"
    # A log has some files; sealed files and maps are closed.
    assert max(size.descriptors for size in sizes) < 6 * PARTITIONS
    maps_before, maps_after = (max(size.maps for size in part) for part in (before, after))
    assert maps_after < 1.25 * maps_before + 100


def end(node: Pykbroker) -> None:
    assert node.stop() == 0
    said = node.log_file.read_text(errors="replace")
    bad = [line for line in said.splitlines() if " ERROR " in line or "Traceback" in line or "Fatal" in line]
    assert not bad, bad[:5]


@pytest.mark.slow
def test_a_day_in_half_a_minute(node: Pykbroker) -> None:
    live(node, 20)
    end(node)


@pytest.mark.long(amount="ten minutes")
@pytest.mark.timeout(1200)
def test_a_day_in_ten_minutes(node: Pykbroker) -> None:
    live(node, 600)
    end(node)


def test_a_node_that_grows_is_noticed() -> None:
    flat = [Size(100 << 20, 500, 300)] * 90
    check_sizes(flat)
    for leak in (Size(200 << 20, 500, 300), Size(100 << 20, 9000, 300), Size(100 << 20, 500, 900)):
        with pytest.raises(AssertionError):
            check_sizes([*flat[:60], *[leak] * 30])
