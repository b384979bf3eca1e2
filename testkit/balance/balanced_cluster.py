"""The effect of balance on four brokers in processes, under producers and consumers, for a test and for bench/.

The load of brokers is the growth of their directories: leaders' replicas on one side, followers' on the other.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from pykbroker.tools.cluster import replicas_on_disk, topics
from pykbroker.tools.commands.client_options import ClientOptions
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from testkit.nodes.processes import Process, run_here
from testkit.nodes.wire import Wire

TOPIC = "paced"
PARTITIONS = 40
BROKERS = (1, 2, 3, 4)
_RECORD = b"x" * 1000
#: The number of partitions that each broker leads at first; the next broker follows.
_LED = (22, 12, 4, 2)
_READY_SECONDS = 120.0


class PacedLoad:
    """Producers and a consumer of every partition, at a rate in bytes per second; no partition has 5 % of it."""

    def __init__(self, bootstrap: str, rate: float, linger_ms: int) -> None:
        """`linger_ms`: the time that a batch of a partition waits for more records."""
        self.errors: list[str] = []
        self.acknowledged = 0
        self.read = 0
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._weights = [0.6 + 0.8 * (number % 5) / 4 for number in range(PARTITIONS)]
        self._rate = rate
        self._linger_ms = linger_ms
        self._bootstrap = bootstrap
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]

    def __enter__(self) -> PacedLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the producers first, and the consumer when it has read everything, or takes too long."""
        self._producing.set()
        self._threads[0].join()
        deadline = time.monotonic() + _READY_SECONDS
        while self.read < self.acknowledged and time.monotonic() < deadline and not self.errors:
            time.sleep(0.05)
        self._consuming.set()
        self._threads[1].join()

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": self._linger_ms,
                "log_level": 0,
            }
        )

        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(f"produce: {error}")
            else:
                self.acknowledged += 1

        begin, sent = time.monotonic(), 0.0
        share = [weight / sum(self._weights) for weight in self._weights]
        assert max(share) < 0.05
        owed = [0.0] * PARTITIONS
        while not self._producing.is_set():
            due = (time.monotonic() - begin) * self._rate
            for number in range(PARTITIONS):
                owed[number] += (due - sent) * share[number]
                while owed[number] >= len(_RECORD):
                    owed[number] -= len(_RECORD)
                    producer.produce(TOPIC, _RECORD, partition=number, on_delivery=told)
            sent = due
            producer.poll(0.01)
        producer.flush(60)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "paced",
                "auto.offset.reset": "earliest",
                # It reads everything, and not each batch by itself.
                "fetch.min.bytes": 100_000,
                "fetch.wait.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while not self._consuming.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is not None:
                    self.errors.append(f"consume: {message.error()}")
                else:
                    self.read += 1
        consumer.close()


@dataclass(slots=True)
class BalanceProof:
    """Bytes per second of each broker, and their coefficients of variation, before and after."""

    leader_in: list[dict[int, float]] = field(default_factory=list)
    replication_in: list[dict[int, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    acknowledged: int = 0
    read: int = 0
    #: the number of replicas on broker 4 after it was drained, and after it was filled again; None if not tested
    drained: int | None = None
    filled: int | None = None

    def falls(self) -> tuple[float, float]:
        """Return the shares by which the coefficients fall: of leader bytes in, and of replication bytes in."""
        first, second = (
            1 - variation_of(each[1]) / variation_of(each[0]) for each in (self.leader_in, self.replication_in)
        )
        return first, second


def variation_of(rates: Mapping[int, float]) -> float:
    mean = sum(rates.values()) / len(rates)
    return float((sum((each - mean) ** 2 for each in rates.values()) / len(rates)) ** 0.5 / mean)


def prove(
    folder: Path, rate: float, window_seconds: float, *, drains: bool = False, linger_ms: int = 20
) -> BalanceProof:
    """Run four uneven brokers with RF 2, then `balance plan` and `balance run` under the load. With `drains`, broker 4
    is emptied afterwards, and filled again like a new one."""
    proof = BalanceProof()
    words = ("--port", "0", "--data-dir", str(folder / "tree"), "--brokers", "4", "--set", "min.insync.replicas=1")
    with Process(folder / "said", *words) as process:
        bootstrap = process.ready(_READY_SECONDS).address
        _create(bootstrap.split(",")[0])
        with PacedLoad(bootstrap, rate, linger_ms) as load:
            while not (load.read or load.errors):
                time.sleep(0.05)
            _look(proof, bootstrap, window_seconds)

            def balance(*words: str) -> None:
                plan, at = str(folder / "plan.json"), ("-b", bootstrap)
                window = ("--window", str(window_seconds))
                planned = run_here("balance", "plan", *words, *window, "--file", plan, *at)
                done = run_here("balance", "run", plan, "--throttle", str(int(rate * 4)), "-o", "json", *at)
                if planned.returncode or done.returncode or json.loads(done.stdout)["left"]:
                    proof.errors.append(planned.stderr + done.stdout + done.stderr)

            balance()
            _look(proof, bootstrap, window_seconds)
            if drains:
                balance("--drain", str(BROKERS[-1]))
                proof.drained = _replicas_on(bootstrap, BROKERS[-1])
                balance()
                proof.filled = _replicas_on(bootstrap, BROKERS[-1])
        proof.errors += load.errors
        proof.acknowledged, proof.read = load.acknowledged, load.read
        # The nodes end with the process that started them, and write until then.
        process.interrupt()
    return proof


def _create(address: str) -> None:
    leaders = [broker for broker, count in zip(BROKERS, _LED, strict=True) for _ in range(count)]
    rows = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=[leader, leader % 4 + 1])
        for number, leader in enumerate(leaders)
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=rows)
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        with Wire(address, timeout=40) as wire:
            (made,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
        if made.error_code == ErrorCode.NONE:
            return
        # Not all brokers are registered yet.
        assert time.monotonic() < deadline, made
        time.sleep(0.1)


def _replicas_on(bootstrap: str, broker: int) -> int:
    with ClientOptions(bootstrap, {}).cluster() as cluster:
        (topic,) = topics.described(cluster, [TOPIC])
    return sum(broker in row.replicas for row in topic.partitions)


def _look(proof: BalanceProof, bootstrap: str, seconds: float) -> None:
    with ClientOptions(bootstrap, {}).cluster() as cluster:

        def sizes() -> dict[tuple[int, int], int]:
            told = replicas_on_disk.described(cluster, BROKERS, [TOPIC])
            return {
                (broker, one.partition): one.size_bytes
                for broker, directories in told.items()
                for each in directories
                for one in each.replicas
            }

        begin, began = sizes(), time.monotonic()
        time.sleep(seconds)
        end, took = sizes(), time.monotonic() - began
        (topic,) = topics.described(cluster, [TOPIC])
    leaders = {row.number: row.leader for row in topic.partitions}
    led, followed = dict.fromkeys(BROKERS, 0.0), dict.fromkeys(BROKERS, 0.0)
    for (broker, number), size in end.items():
        side = led if leaders[number] == broker else followed
        side[broker] += max(0, size - begin.get((broker, number), 0)) / took
    proof.leader_in.append(led)
    proof.replication_in.append(followed)
