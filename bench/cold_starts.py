"""A cold start of a whole cluster: from the start of three processes to the first record that all of them acknowledge.

A client asks every 10 ms for the leader of a partition of three replicas, and writes to it with acks=all. There are
three starts:
* on directories that are only formatted; the time includes the topic, which is created as soon as a node can;
* after a stop like that of docker-compose: SIGTERM to all at once, and SIGKILL after ten seconds;
* after SIGKILL to all at once.
In the last two the nodes have the topic, and every partition is awaited. The page cache stays as it is.
"""

from __future__ import annotations

import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from bench.clusters import NUMBERS, Cluster, warm_up
from bench.measurements import Figure, Kind, Measurement
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.wire import Wire
from testkit.writers import EVERY_SECONDS, GIVE_UP_SECONDS, Asking

TOPIC = "cold"
#: The time that docker-compose gives a container to stop.
_STOP_SECONDS = 10.0
_SETTLE_SECONDS = 2.0


def _launch(cluster: Cluster) -> float:
    """Begin to start all nodes, and return the time of it."""
    began = time.monotonic()
    for number in NUMBERS:
        cluster.launch(number)
    return began


def _create(cluster: Cluster) -> None:
    """Ask one node after the other until the topic is created."""
    topic = CreatableTopic(name=TOPIC, num_partitions=len(NUMBERS), replication_factor=len(NUMBERS))
    until = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < until:
        for number in NUMBERS:
            with suppress(OSError), Wire(cluster.address(number), timeout=GIVE_UP_SECONDS) as wire:
                code = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
        time.sleep(EVERY_SECONDS)
    raise TimeoutError(f"{cluster.name} has made no topic")


def _acknowledged_after(cluster: Cluster, began: float) -> list[float]:
    """Return the seconds from `began` to the first acknowledged record of each partition, the shortest first."""
    addresses = [cluster.address(number) for number in NUMBERS]
    with ExitStack() as stack:
        writers = [Asking(addresses, TOPIC, partition) for partition in range(len(NUMBERS))]
        for writer in writers:
            writer.start()
            stack.callback(writer.stop)
        series = [each for writer in writers for each in writer.acknowledged.values()]
        while not all(each.times for each in series):
            if time.monotonic() > began + 2 * GIVE_UP_SECONDS:
                raise TimeoutError(f"{cluster.name} acknowledges nothing in some partition")
            time.sleep(EVERY_SECONDS)
    return sorted(each.times[0] - began for each in series)


def _stop_as_compose(cluster: Cluster) -> None:
    """Ask all nodes at once to stop, and after ten seconds kill those that still run."""

    def stop(number: int) -> None:
        node = cluster.running[number]
        try:
            node.halt(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            node.halt(signal.SIGKILL)

    with ThreadPoolExecutor(len(NUMBERS)) as pool:
        list(pool.map(stop, NUMBERS))
    cluster.running.clear()


def _kill(cluster: Cluster) -> None:
    for number in NUMBERS:
        cluster.kill(number)


def cold_starts(cluster: Cluster, seconds: float) -> dict[str, float]:
    cluster.format()
    began = _launch(cluster)
    _create(cluster)
    found = {"only formatted, first record": _acknowledged_after(cluster, began)[0]}
    for name, end in (("stopped", _stop_as_compose), ("killed", _kill)):
        cluster.serving(*NUMBERS)
        cluster.in_sync(TOPIC)
        time.sleep(_SETTLE_SECONDS)
        end(cluster)
        first, *_, last = _acknowledged_after(cluster, _launch(cluster))
        found |= {f"{name}, first record": first, f"{name}, every partition": last}
    return found


COLD_STARTS = [
    Measurement(
        "cold start, three nodes",
        cold_starts,
        tuple(
            Figure(name, "s", more_is_better=False, target=1)
            for name in (
                "only formatted, first record",
                "stopped, first record",
                "stopped, every partition",
                "killed, first record",
                "killed, every partition",
            )
        ),
        fresh=True,
        kind=Kind("cold start", Cluster, warm_up, alone=True),
    )
]
