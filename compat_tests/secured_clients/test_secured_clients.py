"""Each client with each mechanism, with and without TLS, on one node with ACLs. The right password writes and reads; a
wrong one and a topic without an ACL raise the client's own exceptions.

The sessions of the node end every two seconds, so a client that works for longer has renewed its session.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests.sasl.secured import MODULES, USERS
from compat_tests.secured_clients.said import CASES, JAVA, LIBRARIES, PROTOCOLS
from compat_tests.secured_clients.secured_listeners import DENIED, PATIENCE, SecuredListeners, secured_listeners
from compat_tests.tool_server import run_shared
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredListeners]:
    with secured_listeners(against, tmp_path_factory.mktemp("secured"), CLIENTS) as made:
        yield made


class KafkaPython:
    """The client kafka-python."""

    def settings(self, secured: SecuredListeners, protocol: str, mechanism: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": secured.address(protocol),
            "security_protocol": protocol,
            "ssl_cafile": secured.authority if protocol == "SASL_SSL" else None,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USERS[mechanism][0],
            "sasl_plain_password": password,
        }

    def copy(self, settings: dict[str, Any], topic: str, values: Iterator[bytes]) -> list[bytes]:
        from kafka import KafkaConsumer, KafkaProducer

        producer = KafkaProducer(**settings, bootstrap_timeout_ms=PATIENCE * 1000, retries=20)
        count = 0
        for value in values:
            producer.send(topic, value).get(PATIENCE)
            count += 1
        producer.close()
        consumer = KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
        found: list[bytes] = []
        while len(found) < count:
            records = consumer.poll(timeout_ms=PATIENCE * 1000)
            assert records
            found += [record.value for each in records.values() for record in each]
        consumer.close()
        return found

    def refused(self, settings: dict[str, Any]) -> str:
        from kafka import KafkaProducer
        from kafka.errors import KafkaTimeoutError

        with pytest.raises(KafkaTimeoutError):
            KafkaProducer(**settings, bootstrap_timeout_ms=3000)
        # Its log has the reason.
        return "SaslAuthenticationFailed"

    def denied(self, settings: dict[str, Any]) -> str:
        from kafka import KafkaProducer
        from kafka.errors import TopicAuthorizationFailedError

        producer = KafkaProducer(**settings, bootstrap_timeout_ms=PATIENCE * 1000, max_block_ms=10_000)
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            producer.send(DENIED, b"x").get(PATIENCE)
        producer.close()
        return type(raised.value).__name__


class ConfluentKafka:
    """The client confluent-kafka, which is librdkafka."""

    def settings(self, secured: SecuredListeners, protocol: str, mechanism: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": secured.address(protocol),
            "security.protocol": protocol,
            "ssl.ca.location": secured.authority,
            "sasl.mechanism": mechanism,
            "sasl.username": USERS[mechanism][0],
            "sasl.password": password,
            "log_level": 0,
        }

    def copy(self, settings: dict[str, Any], topic: str, values: Iterator[bytes]) -> list[bytes]:
        from confluent_kafka import Consumer, Producer

        producer = Producer(settings)
        count = 0
        failed: list[object] = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
            assert producer.flush(PATIENCE) == 0
            count += 1
        assert failed == []
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE)
            assert message is not None
            assert message.error() is None
            found.append(message.value() or b"")
        consumer.close()
        return found

    def refused(self, settings: dict[str, Any]) -> str:
        from confluent_kafka import KafkaError, Producer

        errors: list[KafkaError] = []
        producer = Producer({**settings, "error_cb": errors.append})
        deadline = time.monotonic() + PATIENCE
        while not errors and time.monotonic() < deadline:
            producer.poll(1)
        return str(errors[0].name())

    def denied(self, settings: dict[str, Any]) -> str:
        from confluent_kafka import KafkaError, Producer

        errors: list[KafkaError | None] = []
        producer = Producer({**settings, "message.timeout.ms": 30_000})
        producer.produce(DENIED, b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE)
        assert errors[0] is not None
        return str(errors[0].name())


class AioKafka:
    """The client aiokafka."""

    def settings(self, secured: SecuredListeners, protocol: str, mechanism: str, password: str) -> dict[str, Any]:
        trusted = ssl.create_default_context(cafile=secured.authority) if protocol == "SASL_SSL" else None
        return {
            "bootstrap_servers": secured.address(protocol),
            "security_protocol": protocol,
            "ssl_context": trusted,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USERS[mechanism][0],
            "sasl_plain_password": password,
        }

    def copy(self, settings: dict[str, Any], topic: str, values: Iterator[bytes]) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        async def run() -> list[bytes]:
            count = 0
            async with AIOKafkaProducer(**settings) as producer:
                for value in values:
                    await producer.send_and_wait(topic, value)
                    count += 1
            consumer = AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
            async with consumer:
                return [bytes((await asyncio.wait_for(consumer.getone(), PATIENCE)).value) for _ in range(count)]

        return asyncio.run(run())

    def refused(self, settings: dict[str, Any]) -> str:
        return self._failure(settings, None)

    def denied(self, settings: dict[str, Any]) -> str:
        return self._failure(settings, DENIED)

    def _failure(self, settings: dict[str, Any], topic: str | None) -> str:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError

        async def run() -> str:
            producer = AIOKafkaProducer(**settings)
            try:
                await producer.start()
                if topic is not None:
                    await producer.send_and_wait(topic, b"x")
            except KafkaError as error:
                return type(error).__name__
            finally:
                await producer.stop()
            return ""

        return asyncio.run(run())


CLIENTS: Final[dict[str, Any]] = {
    "kafka-python": KafkaPython(),
    "confluent-kafka": ConfluentKafka(),
    "aiokafka": AioKafka(),
}
assert CLIENTS.keys() == LIBRARIES.keys()


def values_for(seconds: float) -> Iterator[bytes]:
    deadline = time.monotonic() + seconds
    number = 0
    while number < 3 or time.monotonic() < deadline:
        yield str(number).encode()
        number += 1


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
@pytest.mark.parametrize("client", CLIENTS)
def test_writes_and_reads(secured: SecuredListeners, client: str, protocol: str, mechanism: str) -> None:
    """One mechanism of each protocol writes for longer than a session lasts."""
    one = CLIENTS[client]
    settings = one.settings(secured, protocol, mechanism, USERS[mechanism][1])
    found = one.copy(settings, f"{client}-{protocol}-{mechanism}", values_for(3 if mechanism == "SCRAM-SHA-512" else 0))
    assert found == [str(number).encode() for number in range(len(found))]


@pytest.mark.parametrize(("protocol", "mechanism"), CASES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password(
    secured: SecuredListeners,
    client: str,
    protocol: str,
    mechanism: str,
    against: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="kafka")
    one = CLIENTS[client]
    assert one.refused(one.settings(secured, protocol, mechanism, "wrong")) == LIBRARIES[client].wrong_password
    if client == "kafka-python" and against == "pykbroker":
        # kafka-python does not read an answer that comes with the end of the connection; the answer of Apache Kafka
        # does not.
        assert LIBRARIES[client].wrong_password in caplog.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_without_an_acl(secured: SecuredListeners, client: str, protocol: str) -> None:
    one = CLIENTS[client]
    settings = one.settings(secured, protocol, "SCRAM-SHA-256", USERS["SCRAM-SHA-256"][1])
    assert one.denied(settings) == LIBRARIES[client].denied_topic


@pytest.mark.parametrize(("protocol", "mechanism"), JAVA.cases)
def test_java(secured: SecuredListeners, protocol: str, mechanism: str, tmp_path: Path) -> None:
    """A tool of Apache Kafka reads a topic that its user may see, uses a wrong password, and asks for a topic that its
    user may not see."""
    kafka_libs()
    user, password = USERS[mechanism]

    def described(topic: str, password: str) -> Any:
        file = tmp_path / "client.properties"
        line = f'{MODULES[mechanism]} required username="{user}" password="{password}";'
        file.write_text(
            f"security.protocol={protocol}\nsasl.mechanism={mechanism}\nsasl.jaas.config={line}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority}\n"
        )
        arguments = ["--bootstrap-server", secured.address(protocol), "--command-config", str(file), "--topic", topic]
        return run_shared("org.apache.kafka.tools.GetOffsetShell", arguments, check=False)

    mine = f"kafka-python-{protocol}-{mechanism}"
    assert described(mine, password).out.startswith(f"{mine}:0:")
    assert JAVA.wrong_password in described(mine, "wrong").err
    refused = described(DENIED, password)
    assert f"{DENIED}:0" not in refused.out
    assert refused.status == 1
