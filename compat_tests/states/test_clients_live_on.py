"""Clients that live over a reset, and over a snapshot that comes back, write and read again.

docs/testing.md says which of them must be made anew. `bench/states.py` measures how long the others take.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.built import java_classes
from pykbroker.testing import Broker
from testkit.nodes.nodes import eventually
from testkit.oracle.kafka import java_command

TOPIC = "orders"
ROUNDS = 3

#: Writes a value and reads it again.
Talk = Callable[[str], None]
#: Takes the broker and the protocol of groups.
Client = Callable[[Broker, str], AbstractContextManager[Talk]]


@contextmanager
def java(broker: Broker, protocol: str) -> Iterator[Talk]:
    classes = java_classes(Path(__file__).with_name("AliveClient.java"))
    command = [*java_command("AliveClient", extra_classpath=classes), broker.bootstrap_servers, TOPIC, protocol]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        assert process.stdout

        def talk(value: str) -> None:
            assert process.stdin
            assert process.stdout
            process.stdin.write(value + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ok\n"

        try:
            yield talk
        finally:
            process.stdin.close()
            process.kill()


@contextmanager
def librdkafka(broker: Broker, protocol: str) -> Iterator[Talk]:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(servers)
    consumer = Consumer(
        {**servers, "group.id": "librdkafka", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])

    def talk(value: str) -> None:
        producer.produce(TOPIC, value)
        assert producer.flush(60) == 0

        def is_read() -> bool:
            message = consumer.poll(0.1)
            return message is not None and message.error() is None and message.value() == value.encode()

        eventually(f"the consumer reads {value}", is_read)

    try:
        yield talk
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("client", "protocol", "way"),
    [
        (java, "classic", "reset"),
        (java, "consumer", "reset"),
        (java, "classic", "restore"),
        (java, "consumer", "restore"),
        (librdkafka, "classic", "reset"),
        # A member of the newer protocol ends with a fatal error if its group is gone, so a reset is not tried.
        (librdkafka, "classic", "restore"),
        (librdkafka, "consumer", "restore"),
    ],
)
def test_a_producer_and_a_member_live_on(client: Client, protocol: str, way: str) -> None:
    with Broker({"auto.create.topics.enable": False}) as broker:
        broker.create_topic(TOPIC)
        with client(broker, protocol) as talk:
            talk("first")
            snapshot = broker.snapshot()
            for number in range(ROUNDS):
                talk(f"later {number}")
                if way == "reset":
                    broker.reset()
                    broker.create_topic(TOPIC)
                else:
                    broker.restore(snapshot)
                talk(f"again {number}")
                values = [record.value for record in broker.records(TOPIC)]
                assert values == [b"first", b"again %d" % number][way == "reset" :]
