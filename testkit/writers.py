"""Clients that continue while nodes of a cluster die or restart, and record when each of their requests was
acknowledged.

A client that sends a request every 10 ms shows the pauses of the cluster itself. librdkafka, the Java producer and the
group consumer run with their defaults and add their own timers. Every record has a unique value, so that each
acknowledged one can be found afterwards. Not here: the choice of the node that dies, and the figures.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import tool_command
from testkit.programs import Worker

EVERY_SECONDS = 0.01
GIVE_UP_SECONDS = 60.0


class Acknowledged:
    """The acknowledgements of one partition: the values, and their times in seconds of time.monotonic()."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[bytes] = []

    def add(self, value: bytes) -> None:
        self.values.append(value)
        self.times.append(time.monotonic())

    def later_than(self, since: float) -> bool:
        return bool(self.times) and self.times[-1] > since

    def longest_pause(self, begin: float, end: float) -> float:
        return longest_pause(list(self.times), begin, end)


def longest_pause(times: Sequence[float], begin: float, end: float) -> float:
    """Return the longest time without an acknowledgement, from the last one before `begin` until `end`.

    A pause that lasts at `end` counts up to there."""
    before = max((at for at in times if at <= begin), default=begin)
    seen = [before, *(at for at in times if begin < at <= end), end]
    return max(late - early for early, late in pairwise(seen))


def lost(acknowledged: Sequence[bytes], found: Sequence[bytes]) -> int:
    """Return how many acknowledged records are not there."""
    return len(set(acknowledged) - set(found))


class Writer(ABC):
    """A client with one series for each partition that it writes (a group consumer has one for its commits)."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.acknowledged: Mapping[int, Acknowledged] = {partition: Acknowledged() for partition in partitions}
        #: errors that the client returned to the application
        self.failures: list[str] = []

    @abstractmethod
    def start(self) -> None:
        """Begin to write."""

    @abstractmethod
    def stop(self) -> None:
        """End when all sent requests are answered."""


class Stepping(Writer):
    """A client that takes a step every 10 ms, in its own thread."""

    def __init__(self, partitions: Sequence[int]) -> None:
        super().__init__(partitions)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * GIVE_UP_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"{type(self).__name__} does not end")
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.step()
            self._stop.wait(EVERY_SECONDS)

    @abstractmethod
    def step(self) -> None:
        """Send the due requests, and read the responses."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections, after the last step."""


class Asking(Stepping):
    """Asks any node that answers for the leader of its partition, and produces to it with acks=all."""

    def __init__(self, addresses: Sequence[str], topic: str, partition: int) -> None:
        super().__init__([partition])
        self._addresses = addresses
        self._topic = topic
        self._partition = partition
        self._leader: str | None = None
        self._wires: dict[str, Wire] = {}
        self._sent = 0

    def _wire(self, address: str) -> Wire:
        if address not in self._wires:
            self._wires[address] = Wire(address, timeout=GIVE_UP_SECONDS)
        return self._wires[address]

    def _drop(self, address: str) -> None:
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        for address in list(self._wires):
            self._drop(address)

    def step(self) -> None:
        if self._leader is None:
            self._leader = self._find()
            return
        self._sent += 1
        value = b"asking-%d-%d" % (self._partition, self._sent)
        data = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=self._partition, records=batch(value))]
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        try:
            answer = self._wire(self._leader).call(request, 12).responses[0].partition_responses[0]
        except OSError:
            self._drop(self._leader)
            self._leader = None
            return
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[self._partition].add(value)
        else:
            self._leader = None

    def _find(self) -> str | None:
        for address in self._addresses:
            try:
                found = self._wire(address).metadata(self._topic)
            except OSError:
                self._drop(address)
                continue
            for each in found.topics[0].partitions:
                if each.partition_index == self._partition and each.leader_id >= 0:
                    ports = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
                    return ports.get(each.leader_id)
        return None


class Librdkafka(Stepping):
    """A producer with its defaults (acks=all is one), which sends a record to each partition in each step."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        super().__init__(partitions)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topic = topic
        self._sent = 0

    def step(self) -> None:
        self._sent += 1
        for partition in self.acknowledged:
            value = b"librdkafka-%d-%d" % (partition, self._sent)
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.flush(GIVE_UP_SECONDS)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()].add(message.value())
        else:
            self.failures.append(str(error))


class JavaProducer(Writer):
    """A Java producer with its defaults: Apache Kafka's VerifiableProducer, whose own `retries=0` is undone.

    Its keys are numbers that repeat; there are enough of them that each partition gets some.
    """

    KEYS = 30

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], folder: Path) -> None:
        super().__init__(partitions)
        self._folder = folder
        config = folder / "java-producer.properties"
        config.write_text("retries=2147483647\n")
        rate = round(len(partitions) / EVERY_SECONDS)
        self._command = tool_command(
            "org.apache.kafka.tools.VerifiableProducer",
            ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate)]
            + ["--repeating-keys", str(self.KEYS), "--command-config", str(config)],
        )
        self._worker: Worker | None = None

    def start(self) -> None:
        self._worker = Worker("java-producer", self._command, self._folder / "java-producer.log", self.take)

    def stop(self) -> None:
        if self._worker is None:
            return
        self._worker.terminate()
        try:
            self._worker.wait(2 * GIVE_UP_SECONDS)
        finally:
            if self._worker.alive():
                self._worker.kill()

    def take(self, event: Mapping[str, Any]) -> None:
        """Read one line of the tool."""
        if event["name"] == "producer_send_success":
            self.acknowledged[event["partition"]].add(event["value"].encode())
        elif event["name"] == "producer_send_error":
            self.failures.append(str(event.get("message")))


class Committing(Stepping):
    """A librdkafka consumer of a group with its defaults: it reads, and commits in each step, one commit at a time."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__([0])
        self._topic = topic
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )
        self._consumer.subscribe([topic])
        self._next = 0

    def step(self) -> None:
        self._consumer.consume(1000, EVERY_SECONDS)
        if not self._consumer.assignment():
            return
        self._next += 1
        try:
            done = self._consumer.commit(offsets=[TopicPartition(self._topic, 0, self._next)], asynchronous=False)
        except KafkaException:
            # There is no coordinator: the next step tries again, and the pause includes it.
            return
        if not any(each.error for each in done):
            self.acknowledged[0].add(b"%d" % self._next)

    def close(self) -> None:
        self._consumer.close()
