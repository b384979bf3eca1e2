"""What clients of the host ask a broker in a container: librdkafka through published ports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from compat_tests.clients import wait_until
from compat_tests.container.containers import PATIENCE_S


def at(*ports: int) -> str:
    return ",".join(f"localhost:{port}" for port in ports)


def metadata(bootstrap: str) -> ClusterMetadata:
    """What one broker says of the cluster, as soon as one answers."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def asked() -> ClusterMetadata | None:
        try:
            return client.list_topics(timeout=5)
        except KafkaException:
            return None

    found: ClusterMetadata = wait_until(asked, f"{bootstrap} answers", timeout_s=PATIENCE_S)
    return found


def topics_at(bootstrap: str) -> dict[str, int]:
    """Topics and their numbers of partitions, without internal ones."""
    found = metadata(bootstrap).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def produce(bootstrap: str, topic: str, values: Sequence[str]) -> None:
    """With acks=all, librdkafka's default; returns when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": int(PATIENCE_S * 1000), "log_level": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: error and failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    """From the beginning, through a new group, so that the coordinator and its topic are there too."""
    consumer = _consumer(bootstrap, uuid.uuid4().hex)
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        consumer.subscribe([topic])
        while len(found) < count:
            assert time.monotonic() < deadline, found
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
