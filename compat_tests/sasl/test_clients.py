"""Clients prove which user they are. The right password works end to end, and a wrong one raises the client's own
exception."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError

from compat_tests.node import Node, make_node
from compat_tests.sasl.secured import MODULES, USERS, Ports, add_users
from compat_tests.tool_server import run_shared
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow
#: Seconds in which a client must do what the test asks for.
PATIENCE = 60
MECHANISMS = list(USERS)
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports.free()


@pytest.fixture(scope="module")
def node(against: str, ports: Ports) -> Iterator[Node]:
    # Sessions end soon, so a test that lasts longer renews them.
    ends = {"listener.name.clients.connections.max.reauth.ms": "2000"}
    node = make_node(against, ports.config(ends), port=ports.plain)
    try:
        node.start()
        add_users(node)
        yield node
    finally:
        node.close()


def python_settings(ports: Ports, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": ports.secured,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "bootstrap_timeout_ms": PATIENCE * 1000,
    }


def confluent_settings(ports: Ports, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": ports.secured,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def java_settings(folder: Path, mechanism: str, user: str, password: str) -> Path:
    file = folder / "client.properties"
    line = f'{MODULES[mechanism]} required username="{user}" password="{password}";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={line}\n")
    return file


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(node: Node, ports: Ports, mechanism: str) -> None:
    settings = python_settings(ports, mechanism, *USERS[mechanism])
    topic = f"python-{mechanism}"
    producer = KafkaProducer(**settings)
    assert producer.send(topic, b"value").get(PATIENCE).offset == 0
    producer.close()
    consumer = KafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
    found = consumer.poll(timeout_ms=PATIENCE * 1000)
    assert [record.value for records in found.values() for record in records] == [b"value"]
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_writes_and_reads(node: Node, ports: Ports, mechanism: str) -> None:
    settings = confluent_settings(ports, mechanism, *USERS[mechanism])
    topic = f"confluent-{mechanism}"
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(PATIENCE)
    assert record is not None
    assert record.value() == b"value"
    consumer.close()


WRONG = [(mechanism, user, "wrong") for mechanism, (user, _) in USERS.items()] + [
    (mechanism, "nobody", "wrong") for mechanism in MECHANISMS
]


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_confluent_kafka_says_that_it_was_refused(
    node: Node, ports: Ports, mechanism: str, user: str, password: str
) -> None:
    errors: list[KafkaError] = []
    settings = confluent_settings(ports, mechanism, user, password)
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + PATIENCE
    while not errors and time.monotonic() < deadline:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    said = "Invalid username or password" if mechanism == "PLAIN" else f"with SASL mechanism {mechanism}"
    assert said in errors[0].str()


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG[::2])
def test_kafka_python_says_that_it_was_refused(
    node: Node, ports: Ports, mechanism: str, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its exception says that it could not begin, and its log gives the reason."""
    caplog.set_level(logging.INFO, logger="kafka")  # the command line silences it in a process of tests
    settings = python_settings(ports, mechanism, user, password)
    with pytest.raises(KafkaTimeoutError):
        KafkaProducer(**{**settings, "bootstrap_timeout_ms": 3000})
    assert "SaslAuthenticationFailed" in caplog.text


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_session_is_renewed_while_records_are_written(node: Node, ports: Ports, client: str, mechanism: str) -> None:
    """connections.max.reauth.ms is 2 s. librdkafka renews its session; kafka-python is disconnected and connects again.
    Neither loses a record."""
    topic = f"renewed-{client}-{mechanism}"
    written = 0
    deadline = time.monotonic() + 4
    if client == "kafka-python":
        python = KafkaProducer(**python_settings(ports, mechanism, *USERS[mechanism]), retries=20)
        while time.monotonic() < deadline:
            assert python.send(topic, str(written).encode()).get(PATIENCE).offset == written
            written += 1
        python.close()
    else:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = confluent_kafka.Producer(
            {**confluent_settings(ports, mechanism, *USERS[mechanism]), "enable.idempotence": True}
        )
        while time.monotonic() < deadline:
            producer.produce(topic, str(written).encode(), on_delivery=delivered)
            assert producer.flush(PATIENCE) == 0
            written += 1
        assert failed == []
    assert written > 10
    reader = KafkaConsumer(topic, bootstrap_servers=node.bootstrap, group_id=topic, auto_offset_reset="earliest")
    values: list[bytes] = []
    while len(values) < written:
        found = reader.poll(timeout_ms=PATIENCE * 1000)
        assert found
        values += [record.value for records in found.values() for record in records]
    reader.close()
    assert values == [str(number).encode() for number in range(written)]


def configs(ports: Ports, file: Path, *args: str, check: bool = True) -> Any:
    return run_shared(CONFIGS, ["--bootstrap-server", ports.secured, "--command-config", str(file), *args], check=check)


def test_kafka_configs_makes_a_user_that_logs_in(node: Node, ports: Ports, tmp_path: Path) -> None:
    """A Java client logs in with each mechanism."""
    kafka_libs()
    entity = ["--entity-type", "users", "--entity-name", "erin"]
    credential = "SCRAM-SHA-512=[iterations=8192,password=erin-secret]"
    plain = java_settings(tmp_path, "PLAIN", *USERS["PLAIN"])
    configs(ports, plain, "--alter", *entity, "--add-config", credential)
    scram = java_settings(tmp_path, "SCRAM-SHA-512", "erin", "erin-secret")
    said = configs(ports, scram, "--describe", *entity).out
    assert "SCRAM credential configs for user-principal 'erin' are SCRAM-SHA-512=iterations=8192" in said
    wrong = java_settings(tmp_path, "SCRAM-SHA-256", USERS["SCRAM-SHA-256"][0], "wrong")
    refused = configs(ports, wrong, "--describe", *entity, check=False)
    assert refused.status == 1
    assert "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed during" in refused.err
