"""What is in a topic, per partition, as a consumer of one isolation level sees it."""

from __future__ import annotations

import time
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from compat_tests.clients import PATIENCE_S


def values(bootstrap: str, topic: str, *, committed: bool = True) -> dict[int, list[bytes]]:
    """The values of each partition by their offsets, to the last stable offset or to the end."""
    return {number: [value for _, value in found] for number, found in placed(bootstrap, topic, committed).items()}


def placed(bootstrap: str, topic: str, committed: bool = True) -> dict[int, list[tuple[int, bytes]]]:
    """The same with the offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in known])
        left = set(known)
        read: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        deadline = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"partitions {sorted(left)} gave no more and did not end"
            for message in consumer.consume(1000, timeout=0.05):
                error = message.error()
                if error is None:
                    read[message.partition()].append((message.offset(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
        return {number: read[number] for number in sorted(known)}
    finally:
        consumer.close()
