"""The pauses of clients of a cluster: after `kill -9` of a node, and while all nodes restart in turn.

Three partitions of three replicas, each led by another node, are written with acks=all by three kinds of clients
(writers.py), all the time. A kill takes either the active controller or another node. The killed node led one of the
partitions and followed the other two; the longer pause of these two counts. A group consumer has its coordinator on the
node. CreateTopics goes to another node, and is repeated until it succeeds. Then the node starts again, and leads its
partitions again. At the end the benchmark looks for every acknowledged record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.clusters import NUMBERS, THREE_NODES, Cluster, spread
from bench.measurements import Figure, Measurement
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.nodes import GROUP
from testkit.nodes.wire import Wire
from testkit.writers import (
    EVERY_SECONDS,
    GIVE_UP_SECONDS,
    Asking,
    Committing,
    JavaProducer,
    Librdkafka,
    Writer,
    lost,
)

TOPIC = "pauses"
OFFSETS = "__consumer_offsets"
#: In each round, on a new cluster; two rounds make ten kills.
KILLS = 5
_ROUNDS = 2
_WARM_SECONDS = 5.0
_SETTLE_SECONDS = 2.0
#: A client is back when it gets an acknowledgement later than this after the kill, and is then watched as long again.
_BACK_SECONDS = 1.0


class Clients:
    """The clients that write the topic while the block runs."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        partitions = range(len(NUMBERS))
        addresses = [cluster.address(number) for number in NUMBERS]
        self.kinds: dict[str, list[Writer]] = {
            "asking every 10 ms": [Asking(addresses, TOPIC, partition) for partition in partitions],
            "librdkafka": [Librdkafka(cluster.bootstrap, TOPIC, partitions)],
            "Java producer": [JavaProducer(cluster.bootstrap, TOPIC, partitions, folder)],
        }

    @property
    def _writers(self) -> list[Writer]:
        return [writer for writers in self.kinds.values() for writer in writers]

    def __enter__(self) -> Self:
        for writer in self._writers:
            writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Stop each of them, also if another one does not end.
        with ExitStack() as stack:
            for writer in self._writers:
                stack.callback(writer.stop)

    def failures(self) -> list[str]:
        return [failure for writer in self._writers for failure in writer.failures]

    def lost(self) -> int:
        """Return how many acknowledged records are not in the topic."""
        count = 0
        for partition, leader in self._cluster.leaders(TOPIC).items():
            with Wire(self._cluster.address(leader), timeout=GIVE_UP_SECONDS) as wire:
                found = wire.values(TOPIC, partition)
            for writer in self._writers:
                if partition in writer.acknowledged:
                    count += lost(writer.acknowledged[partition].values, found)
        return count

    def longest_pause(self, kind: str, partitions: Sequence[int], begin: float, end: float) -> float:
        return max(
            series.longest_pause(begin, end)
            for writer in self.kinds[kind]
            for partition, series in writer.acknowledged.items()
            if partition in partitions
        )

    def wait(self, since: float, *more: Writer) -> None:
        """Wait until each has an acknowledgement later than `since` in every partition, or for GIVE_UP_SECONDS."""
        series = [each for writer in (*self._writers, *more) for each in writer.acknowledged.values()]
        while not all(each.later_than(since) for each in series) and time.monotonic() < since + GIVE_UP_SECONDS:
            time.sleep(EVERY_SECONDS)


def create_a_topic(cluster: Cluster, name: str, since: float) -> float:
    """Return the seconds from `since` until a living node has created a topic."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2)
    with Wire(cluster.address(max(cluster.living())), timeout=GIVE_UP_SECONDS) as wire:
        while True:
            code = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0].error_code
            if code == ErrorCode.NONE or time.monotonic() > since + GIVE_UP_SECONDS:
                return time.monotonic() - since
            time.sleep(EVERY_SECONDS)


def _kills(take_the_controller: bool) -> Callable[[Cluster, float], dict[str, float | list[float]]]:
    def measure(cluster: Cluster, seconds: float) -> dict[str, float | list[float]]:
        cluster.start()
        cluster.new_topic(spread(len(NUMBERS)), TOPIC)
        groups = cluster.keys_by_coordinator(GROUP, "group")
        found: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as folder, Clients(cluster, Path(folder)) as clients:
            clients.wait(time.monotonic())
            time.sleep(_WARM_SECONDS)
            for number in range(KILLS):
                cluster.in_sync(TOPIC, OFFSETS)
                cluster.prefer(TOPIC, OFFSETS)
                victim = _victim(cluster, number, take_the_controller)
                consumer = Committing(cluster.bootstrap, TOPIC, groups[victim])
                consumer.start()
                try:
                    for name, pause in _kill(cluster, victim, clients, consumer, f"made-{number}").items():
                        found.setdefault(name, []).append(pause)
                finally:
                    consumer.stop()
        cluster.in_sync(TOPIC)
        return {**found, "acknowledged records lost": clients.lost(), "failed sends": len(clients.failures())}

    return measure


def _victim(cluster: Cluster, number: int, take_the_controller: bool) -> int:
    active = cluster.active()
    others = [each for each in NUMBERS if each != active]
    return active if take_the_controller else others[number % len(others)]


def _kill(cluster: Cluster, victim: int, clients: Clients, consumer: Committing, topic: str) -> dict[str, float]:
    """Return the pauses around one kill, in seconds; the node runs again afterwards."""
    leaders = cluster.leaders(TOPIC)
    roles = {
        "led": [partition for partition, leader in leaders.items() if leader == victim],
        "followed": [partition for partition, leader in leaders.items() if leader != victim],
    }
    clients.wait(time.monotonic(), consumer)
    time.sleep(_SETTLE_SECONDS)
    killed_at = time.monotonic()
    cluster.kill(victim)
    made = create_a_topic(cluster, topic, killed_at)
    clients.wait(killed_at + _BACK_SECONDS, consumer)
    time.sleep(_BACK_SECONDS)
    end = time.monotonic()
    pauses = {
        f"{kind}, {role}": clients.longest_pause(kind, partitions, killed_at, end)
        for kind in clients.kinds
        for role, partitions in roles.items()
    }
    cluster.launch(victim)
    cluster.nodes[victim].await_ready()
    return {
        **pauses,
        "CreateTopics": made,
        "group consumer": consumer.acknowledged[0].longest_pause(killed_at, end),
    }


def rolling_restart(cluster: Cluster, seconds: float) -> dict[str, float]:
    cluster.start()
    cluster.new_topic(spread(len(NUMBERS)), TOPIC)
    with tempfile.TemporaryDirectory() as folder, Clients(cluster, Path(folder)) as clients:
        clients.wait(time.monotonic())
        time.sleep(_WARM_SECONDS)
        begin = time.monotonic()
        for number in NUMBERS:
            cluster.halt(number)
            cluster.launch(number)
            cluster.nodes[number].await_ready()
            cluster.in_sync(TOPIC)
        took = time.monotonic() - begin
        clients.wait(time.monotonic() + _BACK_SECONDS)
        end = time.monotonic()
        pauses = {kind: clients.longest_pause(kind, range(len(NUMBERS)), begin, end) for kind in clients.kinds}
    cluster.in_sync(TOPIC)
    return {
        **pauses,
        "all restarted": took,
        "acknowledged records lost": clients.lost(),
        "failed sends": len(clients.failures()),
    }


_KINDS = ("asking every 10 ms", "librdkafka", "Java producer")
_WHOLE = (
    Figure("acknowledged records lost", "", more_is_better=False, at_most=0, worst=True),
    Figure("failed sends", "", more_is_better=False, at_most=0, worst=True),
)


def _pause(name: str, median: float | None, worst: float | None) -> tuple[Figure, Figure]:
    """Return the figures of the median and of the worst value, with their limits."""
    return (
        Figure(name, "s", more_is_better=False, at_most=median),
        Figure(f"{name}, worst", "s", more_is_better=False, at_most=worst, of=name, worst=True),
    )


def _figures(client_limits: dict[str, tuple[float | None, float]]) -> tuple[Figure, ...]:
    figures = [
        figure
        for role in ("led", "followed")
        for kind in _KINDS
        for figure in _pause(f"{kind}, {role}", *client_limits[kind])
    ]
    figures += [*_pause("group consumer", None, 3), *_pause("CreateTopics", None, 1.5)]
    return (*figures, *_WHOLE)


PAUSES = [
    Measurement(
        "three nodes, kill -9 of a broker",
        _kills(take_the_controller=False),
        _figures({"asking every 10 ms": (0.3, 1), "librdkafka": (1, 2), "Java producer": (1, 2)}),
        fresh=True,
        most_rounds=_ROUNDS,
        kind=THREE_NODES,
    ),
    Measurement(
        "three nodes, kill -9 of the active controller and broker",
        _kills(take_the_controller=True),
        _figures(dict.fromkeys(_KINDS, (None, 2))),
        fresh=True,
        most_rounds=_ROUNDS,
        kind=THREE_NODES,
    ),
    Measurement(
        "three nodes, rolling restart",
        rolling_restart,
        (*(Figure(kind, "s", more_is_better=False, target=1, worst=True) for kind in _KINDS), *_WHOLE),
        fresh=True,
        kind=THREE_NODES,
    ),
]
