"""The pauses of partitions while a cluster moves by directory from Apache Kafka to pykbroker, node by node, and back.

One cluster of three combined nodes makes four passes. The nodes of Apache Kafka restart, they become pykbroker, they
restart, and they become Apache Kafka again. In each pass the node of the active controller is the last.

So each program starts under the controllers of both. A row has the program that starts, because a JVM takes more of the
machine at its start. A column has the kind of the controller, which is the kind of the node that stopped. Apache Kafka
under its own controller is a rolling restart of Apache Kafka alone, and so with pykbroker. The other two are the moves.

A node's step begins with SIGTERM. It ends when every replica is in sync, every voter has the whole metadata log, the
node leads its partition again, and every client has an acknowledgement later than that. The clients are those of
pauses.py. The longest pause of each partition in the step counts, on the side of the controller that was active at
first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.clusters import NUMBERS, Cluster, spread, warm_up
from bench.measurements import Figure, Kind, Measurement
from bench.pauses import TOPIC, Clients
from bench.servers import ApacheKafka, Pykbroker, Server
from bench.sides import Sides
from testkit.nodes.nodes import eventually

SIDES = Sides("controller of Apache Kafka", "controller of pykbroker")
_SIDE_OF = {ApacheKafka.name: SIDES.other, Pykbroker.name: SIDES.ours}
#: The client that shows the pauses of the cluster itself; the others add their own timers.
_ASKING = "asking every 10 ms"
_OTHERS = ("librdkafka", "Java producer")
_READY_SECONDS = 120.0
_WARM_SECONDS = 5.0
_SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """One node that stopped and started."""

    #: the name of the side whose program the node is after the step
    started: str
    #: the name of the side whose controller was active when the node stopped
    controller: str
    #: True if this controller was on the node
    took_the_controller: bool
    seconds: float
    #: client -> the longest pause of each partition
    pauses: Mapping[str, Sequence[float]]


def figure_name(started: str, *, took_the_controller: bool) -> str:
    """Return the name of the figure for pauses of steps of this kind."""
    return f"{started} starts on {'the active controller' if took_the_controller else 'another node'}"


def numbers_of(steps: Sequence[Step]) -> dict[str, list[float]]:
    """Return the numbers of these steps, under the names of the figures and of their sides."""
    found: dict[str, list[float]] = {}

    def add(name: str, side: str, values: Sequence[float]) -> None:
        found.setdefault(SIDES.others(name) if side == SIDES.other else name, []).extend(values)

    for step in steps:
        side = _SIDE_OF[step.controller]
        add(figure_name(step.started, took_the_controller=step.took_the_controller), side, step.pauses[_ASKING])
        for client in _OTHERS:
            add(f"{step.started} starts, {client}", side, step.pauses[client])
        add(f"{step.started} starts, until the cluster is whole", side, [step.seconds])
    return found


def order_of(active: int) -> list[int]:
    """Return the nodes in the order of their steps: the active controller last, so that there is one election."""
    return sorted(NUMBERS, key=lambda number: (number == active, number))


def _pass(cluster: Cluster, clients: Clients, to: type[Server]) -> list[Step]:
    """Stop each node, and start it as a node of this side."""
    return [_step(cluster, clients, number, to) for number in order_of(cluster.active())]


def _step(cluster: Cluster, clients: Clients, number: int, to: type[Server]) -> Step:
    clients.wait(time.monotonic())
    time.sleep(_SETTLE_SECONDS)
    active = cluster.active()
    controller = cluster.nodes[active].side.name
    begin = time.monotonic()
    cluster.halt(number)
    cluster.nodes[number].become(to)
    cluster.launch(number)
    cluster.nodes[number].await_ready(_READY_SECONDS)
    cluster.in_sync(TOPIC)
    eventually("every voter has the whole metadata log", lambda: cluster.voters_are_whole(NUMBERS))
    seconds = time.monotonic() - begin
    cluster.prefer(TOPIC)
    clients.wait(time.monotonic())
    end = time.monotonic()
    pauses = {
        client: [clients.longest_pause(client, [partition], begin, end) for partition in range(len(NUMBERS))]
        for client in clients.kinds
    }
    return Step(to.name, controller, number == active, seconds, pauses)


def there_and_back(cluster: Cluster, seconds: float) -> dict[str, float | list[float]]:
    cluster.start()
    cluster.new_topic(spread(len(NUMBERS)), TOPIC)
    steps: list[Step] = []
    with tempfile.TemporaryDirectory() as folder, Clients(cluster, Path(folder)) as clients:
        clients.wait(time.monotonic())
        time.sleep(_WARM_SECONDS)
        for to in (ApacheKafka, Pykbroker, Pykbroker, ApacheKafka):
            steps += _pass(cluster, clients, to)
    cluster.in_sync(TOPIC)
    return {
        **numbers_of(steps),
        "acknowledged records lost": clients.lost(),
        "failed sends": len(clients.failures()),
    }


def _figures() -> tuple[Figure, ...]:
    figures: list[Figure] = []
    for started in _SIDE_OF:
        for took_the_controller in (False, True):
            name = figure_name(started, took_the_controller=took_the_controller)
            figures += [
                Figure(name, "s", more_is_better=False, at_most=1),
                Figure(f"{name}, worst", "s", more_is_better=False, of=name, worst=True),
            ]
        for client in _OTHERS:
            name = f"{started} starts, {client}"
            figures.append(Figure(f"{name}, worst", "s", more_is_better=False, of=name, worst=True))
        figures.append(Figure(f"{started} starts, until the cluster is whole", "s", more_is_better=False))
    figures += [
        Figure(name, "", more_is_better=False, at_most=0, worst=True)
        for name in ("acknowledged records lost", "failed sends")
    ]
    return tuple(figures)


ROLLS = [
    Measurement(
        "rolls, three nodes",
        there_and_back,
        _figures(),
        fresh=True,
        kind=Kind("rolls", lambda side: Cluster(ApacheKafka), warm_up, alone=True),
        sides=SIDES,
    )
]
