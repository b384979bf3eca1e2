"""States that come back (docs/testing.md): how long a reset, a snapshot and a restore take, and clients after them.

    python bench/states.py

Each figure is the minimum, the median and the maximum of some rounds, in milliseconds of wall time. The broker has a
topic with 1,000 records, a group with committed offsets, and the coordinators' internal topics.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("", "wire", "log", "raft")]

from confluent_kafka import Consumer, Producer  # noqa: E402

from pykbroker.testing import Broker, Cluster  # noqa: E402

_ROUNDS = 20
_RECORDS = 1_000


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def show(name: str, figures: list[float]) -> None:
    found = sorted(figures)
    print(f"{name:50} {found[0]:8.1f} {found[len(found) // 2]:8.1f} {found[-1]:8.1f}", flush=True)


def fill(kafka: Broker | Cluster) -> None:
    """Write the records, and commit the offsets of a group that has read them."""
    kafka.create_topic("orders")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer(servers)
    for number in range(_RECORDS):
        producer.produce("orders", b"%d" % number)
    producer.flush()
    consumer = Consumer({**servers, "group.id": "bench", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    consumed = 0
    while consumed < _RECORDS:
        consumed += len(consumer.consume(_RECORDS, 0.1))
    consumer.commit(asynchronous=False)
    consumer.close()


def of_a_broker() -> None:
    with Broker() as broker:
        show("one node: reset of an empty broker", [timed(broker.reset) for _ in range(_ROUNDS)])
        fill(broker)
        show("one node: snapshot", [timed(lambda: broker.snapshot().delete()) for _ in range(_ROUNDS)])
        snapshot = broker.snapshot()
        show("one node: restore", [timed(lambda: broker.restore(snapshot)) for _ in range(_ROUNDS)])
        fresh = []
        for _ in range(_ROUNDS):
            broker.restore(snapshot)
            fresh.append(timed(broker.reset))
        show("one node: reset of a broker with data", fresh)


def of_a_cluster() -> None:
    starts = []
    for _ in range(5):
        cluster = Cluster()
        starts.append(timed(cluster.start))
        cluster.stop()
    show("three nodes: start", starts)
    with Cluster() as cluster:
        fill(cluster)
        show("three nodes: snapshot", [timed(lambda: cluster.snapshot().delete()) for _ in range(_ROUNDS)])
        snapshot = cluster.snapshot()
        show("three nodes: restore", [timed(lambda: cluster.restore(snapshot)) for _ in range(_ROUNDS)])


def of_a_client(settings: dict[str, object], name: str) -> None:
    with Broker() as broker:
        fill(broker)
        snapshot = broker.snapshot()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        producer.produce("orders", b"first")
        producer.flush()

        def write() -> None:
            producer.produce("orders", b"again")
            assert producer.flush(60) == 0

        figures = []
        for _ in range(_ROUNDS):
            broker.restore(snapshot)
            figures.append(timed(write))
        show(name, figures)


if __name__ == "__main__":
    print(f"{'':50} {'min':>8} {'median':>8} {'max':>8}")
    of_a_broker()
    of_a_cluster()
    of_a_client({}, "librdkafka: first record after a restore")
    quick = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 100}
    of_a_client(quick, "the same, with the settings of docs/testing.md")
