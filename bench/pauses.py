"""How long partitions stand still after `kill -9` of a node, with three combined nodes and default settings.

    python -m bench.pauses [--rounds 10] [--off]

Three partitions of three replicas (min.insync.replicas 2), each led by another node, are written with acks=all: by a
client that asks for the leader and produces every 10 ms (the cluster's own share of the pause), and by librdkafka at
its defaults. Each round kills one node; the pause is the longest time between two acknowledgements around the kill.
Then CreateTopics goes to a living node, again until it succeeds, and the killed node comes back. Nodes and clients
share one machine. `--off`: with pykbroker.early.fencing.enable=false.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.node.trio import NUMBERS, Trio
from tests.node.wire import Wire, batch

TOPIC = "pauses"
EVERY_SECONDS = 0.01
SETTLE_SECONDS = 4.0
GIVE_UP_SECONDS = 40.0


class Writer:
    """Writes one partition in a thread of its own, and notes when each record is acknowledged."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.acknowledged: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.step()
            time.sleep(EVERY_SECONDS)

    def step(self) -> None:
        raise NotImplementedError

    def pause_around(self, killed_at: float) -> float | None:
        """The longest time between two acknowledgements since then; None while there is no later one."""
        times = list(self.acknowledged)
        before = max((at for at in times if at <= killed_at), default=killed_at)
        after = [before, *(at for at in times if at > killed_at)]
        if len(after) < 2 or after[-1] < killed_at + 1:
            return None
        return max(late - early for early, late in pairwise(after))


class Asking(Writer):
    """Asks any node that answers for the leader, and produces there."""

    def __init__(self, addresses: list[str], partition: int) -> None:
        super().__init__(partition)
        self._addresses = addresses
        self._leader: str | None = None
        self._wires: dict[str, Wire] = {}

    def _wire(self, address: str) -> Wire:
        if address not in self._wires:
            self._wires[address] = Wire(address, timeout=GIVE_UP_SECONDS)
        return self._wires[address]

    def _drop(self, address: str) -> None:
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.close()

    def step(self) -> None:
        if self._leader is None:
            self._leader = self._find()
            return
        data = TopicProduceData(
            name=TOPIC, partition_data=[PartitionProduceData(index=self.partition, records=batch(b"x"))]
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        try:
            answer = self._wire(self._leader).call(request, 12).responses[0].partition_responses[0]
        except OSError:
            self._drop(self._leader)
            self._leader = None
            return
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged.append(time.monotonic())
        else:
            self._leader = None

    def _find(self) -> str | None:
        for address in self._addresses:
            try:
                found = self._wire(address).metadata(TOPIC)
            except OSError:
                self._drop(address)
                continue
            for each in found.topics[0].partitions:
                if each.partition_index == self.partition and each.leader_id >= 0:
                    ports = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
                    return ports.get(each.leader_id)
        return None


class Librdkafka(Writer):
    """A producer at its defaults."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        super().__init__(partition)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def step(self) -> None:
        self._producer.produce(TOPIC, b"x", partition=self.partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(time.monotonic())


def wait_for(writers: Sequence[Writer], killed_at: float) -> None:
    """Until each of them writes again."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while any(each.pause_around(killed_at) is None for each in writers) and time.monotonic() < deadline:
        time.sleep(0.02)


def create_a_topic(cluster: Trio, name: str, since: float) -> float:
    """How long after `since` a node that lives has made a topic."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=2)], timeout_ms=30_000
    )
    with Wire(cluster.address(max(cluster.running)), timeout=GIVE_UP_SECONDS) as wire:
        while True:
            code = wire.call(request).topics[0].error_code
            if code == ErrorCode.NONE or time.monotonic() > since + GIVE_UP_SECONDS:
                return time.monotonic() - since
            time.sleep(EVERY_SECONDS)


def play(cluster: Trio, kind: str, rounds: int) -> dict[str, list[float]]:
    """`kind`: "broker" kills a node that is not the active controller, "controller" one that is."""
    figures: dict[str, list[float]] = {}
    for number in range(rounds):
        cluster.in_sync(TOPIC)
        active = cluster.active()
        victim = active if kind == "controller" else next(each for each in NUMBERS if each != active)
        leaders = cluster.leaders(TOPIC)
        writers: list[tuple[str, Writer]] = []
        addresses = [cluster.address(each) for each in NUMBERS]
        for partition, leader in leaders.items():
            role = "led" if leader == victim else "followed"
            writers += [
                (f"asking every 10 ms, {role}", Asking(addresses, partition)),
                (f"librdkafka, {role}", Librdkafka(cluster.bootstrap, partition)),
            ]
        for _, writer in writers:
            writer.start()
        time.sleep(SETTLE_SECONDS)
        killed_at = time.monotonic()
        cluster.kill(victim)
        made = create_a_topic(cluster, f"made-{kind}-{number}-{time.time_ns()}", killed_at)
        figures.setdefault("CreateTopics", []).append(made)
        wait_for([writer for _, writer in writers], killed_at)
        for name, writer in writers:
            pause = writer.pause_around(killed_at)
            figures.setdefault(name, []).append(GIVE_UP_SECONDS if pause is None else pause)
        for _, writer in writers:
            writer.stop()
        cluster.start(victim).ready(60)
        print(kind, number, {name: round(values[-1], 3) for name, values in figures.items()}, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--off", action="store_true")
    arguments = parser.parse_args()
    settings: dict[str, object] = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": "true"}
    if arguments.off:
        settings["pykbroker.early.fencing.enable"] = "false"
    with tempfile.TemporaryDirectory() as folder, Trio(Path(folder), "static", settings) as cluster:
        cluster.create(TOPIC, (1, 2, 3), (2, 3, 1), (3, 1, 2))
        for kind in ("broker", "controller"):
            for name, values in sorted(play(cluster, kind, arguments.rounds).items()):
                print(f"{kind}: {name}: median {statistics.median(values):.3f} s, worst {max(values):.3f} s")


if __name__ == "__main__":
    main()
