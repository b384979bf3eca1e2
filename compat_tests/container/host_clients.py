"""Requests of clients on the host to a broker in a container: librdkafka through published ports."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata

from compat_tests.container.containers import PATIENCE_S
from example.topics import Reached, settings
from testkit.clients import wait_until


def at(*ports: int) -> str:
    return ",".join(f"localhost:{port}" for port in ports)


def metadata(reached: Reached) -> ClusterMetadata:
    """Return one broker's metadata of the cluster, as soon as one answers."""
    client = AdminClient({**settings(reached), "log_level": 0})

    def asked() -> ClusterMetadata | None:
        try:
            return client.list_topics(timeout=5)
        except KafkaException:
            return None

    return wait_until(asked, "the cluster answers", timeout_s=PATIENCE_S)


def topics_at(reached: Reached) -> dict[str, int]:
    """Return topics and their numbers of partitions, without internal ones."""
    found = metadata(reached).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """Send with acks=all, librdkafka's default; returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000), "log_level": 0})
    failures: list[object] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """Read from the beginning, through a new group, so that the coordinator and its topic are used too."""
    consumer = _consumer(bootstrap, uuid.uuid4().hex)
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            assert time.monotonic() < deadline, found
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return found


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )


class Traffic:
    """An idempotent producer and a consumer group that work while the test changes the cluster.

    Values are 0, 1, 2 and so on. Each thread ends with the `with` block.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._sent = 0
        self._failures: list[str] = []
        self._read: set[int] = set()
        self._threads = (threading.Thread(target=self._produce), threading.Thread(target=self._consume))

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._producing.set()
        self._consuming.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Wait until a record was read that was sent after this call."""
        before = self._sent
        wait_until(lambda: max(self._read, default=-1) > before, "clients go on", timeout_s=PATIENCE_S)

    def finish(self) -> int:
        """Stop the producer, wait until the group has read everything; returns the number of records sent."""
        self._producing.set()
        self._threads[0].join()
        assert self._failures == []
        wait_until(lambda: len(self._read) == self._sent, "everything was read", timeout_s=PATIENCE_S)
        assert self._read == set(range(self._sent))
        return self._sent

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "log_level": 0,
            }
        )
        while not self._producing.wait(0.02):
            producer.produce(self._topic, str(self._sent), on_delivery=self._delivered)
            self._sent += 1
            producer.poll(0)
        left = producer.flush(PATIENCE_S)
        if left:
            self._failures.append(f"{left} records were not acknowledged")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _consume(self) -> None:
        consumer = _consumer(self._bootstrap, uuid.uuid4().hex)
        try:
            consumer.subscribe([self._topic])
            while not self._consuming.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    self._read.add(int(message.value() or b""))
        finally:
            consumer.close()


def records_in(bootstrap: str, topic: str) -> int:
    """Return the number of records in the partitions of a topic, with control records and repeats."""
    consumer = _consumer(bootstrap, uuid.uuid4().hex)
    try:
        found = 0
        for number in consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE_S)
            found += high - low
        return found
    finally:
        consumer.close()
