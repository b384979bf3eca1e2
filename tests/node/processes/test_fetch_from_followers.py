"""Consumers that read from the replica in their rack (KIP-392), on three processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio

pytestmark = pytest.mark.slow

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    racks = {number: {"broker.rack": f"rack{number}"} for number in NUMBERS}
    with Trio(tmp_path, "dynamic", {**REPLICATED, "replica.selector.class": SELECTOR}, racks) as found:
        found.serving(*NUMBERS)
        yield found
        assert not found.complaints()


class RackConsumer:
    """librdkafka's consumer of partition 0 in a rack, and the broker that it reads from."""

    def __init__(self, trio: Trio, topic: str, rack: str) -> None:
        self.values: list[bytes] = []
        self.broker = -1
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": trio.bootstrap,
                "group.id": "racks",
                "client.rack": rack,
                "statistics.interval.ms": 100,
                "stats_cb": self._look,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _look(self, statistics: str) -> None:
        partitions = json.loads(statistics)["topics"].get(self._topic, {}).get("partitions", {})
        self.broker = partitions.get("0", {}).get("broker", -1)

    def read(self, count: int, broker: int | None = None) -> None:
        """Read until this many values are there, and the consumer reads from this broker."""

        def look() -> bool:
            messages = self._consumer.consume(1_000, timeout=0.1)
            self.values += [message.value() or b"" for message in messages if message.error() is None]
            return len(self.values) >= count and broker in (None, self.broker)

        eventually(f"{count} values are read from broker {broker}", look)

    def close(self) -> None:
        self._consumer.close()


def write(trio: Trio, topic: str, numbers: range) -> list[bytes]:
    producer = Producer({"bootstrap.servers": trio.bootstrap, "acks": "all", "enable.idempotence": True})
    values = [b"%d" % number for number in numbers]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return values


def test_a_consumer_reads_from_the_follower_in_its_rack_and_from_the_leader_when_that_dies(trio: Trio) -> None:
    topic = trio.create("t", (1, 2, 3))
    written = write(trio, topic, range(500))
    consumer = RackConsumer(trio, topic, "rack2")
    try:
        consumer.read(500, broker=2)
        written += write(trio, topic, range(500, 600))
        consumer.read(600, broker=2)
        trio.kill(2)
        written += write(trio, topic, range(600, 700))
        consumer.read(700, broker=1)
        trio.start(2).ready(PATIENCE_SECONDS)
        trio.in_sync(topic)
        written += write(trio, topic, range(700, 800))
        consumer.read(800)
    finally:
        consumer.close()
    assert consumer.values == written


def test_a_consumer_goes_on_when_the_leader_dies_and_its_follower_leads(trio: Trio) -> None:
    topic = trio.create("t", (1, 2, 3))
    written = write(trio, topic, range(500))
    consumer = RackConsumer(trio, topic, "rack2")
    try:
        consumer.read(500, broker=2)
        trio.kill(1)
        written += write(trio, topic, range(500, 600))
        consumer.read(600)
    finally:
        consumer.close()
    assert consumer.values == written
