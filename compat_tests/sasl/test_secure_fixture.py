"""The settings that `SecureBroker` makes for each foreign client are enough."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from compat_tests.tool_server import run_shared
from pykbroker.testing import SecureBroker
from testkit.oracle.kafka import kafka_libs

FORMS = [
    {"protocol": "SSL"},
    {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"},
    {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256"},
    {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512"},
]


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: "-".join(form.values()))
def broker(request: pytest.FixtureRequest) -> Iterator[SecureBroker]:
    with SecureBroker(**request.param) as broker:
        yield broker


def one_value(broker: SecureBroker, topic: str) -> bytes | None:
    (record,) = broker.wait_for_records(topic, 1)
    return record.value


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def test_confluent_kafka(broker: SecureBroker, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(broker.confluent("alice"))
    producer.produce(topic, b"librdkafka")
    assert producer.flush(60) == 0
    assert one_value(broker, topic) == b"librdkafka"


def test_aiokafka(broker: SecureBroker, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        async with AIOKafkaProducer(**broker.aiokafka("bob")) as producer:
            await producer.send_and_wait(topic, b"aiokafka")

    asyncio.run(send())
    assert one_value(broker, topic) == b"aiokafka"


def test_java(broker: SecureBroker, topic: str) -> None:
    kafka_libs()
    where = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", broker.properties_file("alice")]
    run_shared("org.apache.kafka.tools.ConsoleProducer", [*where, "--topic", topic], stdin="java\n")
    assert one_value(broker, topic) == b"java"
