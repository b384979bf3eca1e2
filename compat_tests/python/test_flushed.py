"""flush.messages: every answer waits for an fsync, and this has no other effect on librdkafka's producers and
transactions."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from compat_tests.node import Node
from compat_tests.topics import Topics
from testkit.clients import PATIENCE_S


def read(node: Node, topic: str, count: int) -> list[bytes]:
    """Return `count` records of partition 0, and check that there are no more."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": topic, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        found = consumer.consume(count - len(values), PATIENCE_S)
        assert found, f"{len(values)} of {count}"
        values += [message.value() or b"" for message in found]
    assert not consumer.consume(1, 0.2)
    consumer.close()
    return values


@pytest.mark.parametrize("messages", ["1", "7"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_producers_and_transactions_with_flushes(broker: Node, topics: Topics, messages: str, acks: str) -> None:
    topic = topics.create(config={"flush.messages": messages})
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": broker.bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": acks == "all"})
    expected = [b"%d" % number for number in range(500)]
    for value in expected:
        producer.produce(topic, value, partition=0, on_delivery=told)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    if acks == "all":
        transactional = Producer({**settings, "transactional.id": f"id-{topic}"})
        transactional.init_transactions(PATIENCE_S)
        for number in range(6):
            transactional.begin_transaction()
            values = [b"t%d-%d" % (number, index) for index in range(3)]
            for value in values:
                transactional.produce(topic, value, partition=0)
            if number % 3 == 2:
                transactional.flush(PATIENCE_S)
                transactional.abort_transaction(PATIENCE_S)
            else:
                transactional.commit_transaction(PATIENCE_S)
                expected += values
    assert read(broker, topic, len(expected)) == expected
