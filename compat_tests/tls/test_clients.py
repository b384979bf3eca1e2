"""Stock clients use an SSL listener, with certificates that OpenSSL and keytool read. The tests check the data and the
refusals."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Node, make_node
from compat_tests.tool_server import run_shared
from testkit import needs
from testkit.certificates import authority, client_identity, node_identity
from testkit.clients import PATIENCE_S, wait_until
from testkit.oracle.kafka import kafka_libs
from testkit.ports import steady_port

MB = 1 << 20
SECRET = "storesecret"


@dataclass(frozen=True)
class SecuredNode:
    """A node whose SSL listener asks every client for a certificate."""

    node: Node
    address: str
    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def kafka_python(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SSL",
            "ssl_cafile": self.file("authority.pem"),
            "ssl_certfile": self.file("client.pem"),
            "ssl_keyfile": self.file("client.key"),
        }

    def librdkafka(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SSL",
            "ssl.ca.location": self.file("authority.pem"),
            "ssl.certificate.location": self.file("client.pem"),
            "ssl.key.location": self.file("client.key"),
        }

    def java(self, **changed: str) -> str:
        """Write a properties file and return its name."""
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.location": self.file("keytool.p12"),
            "ssl.truststore.password": SECRET,
            "ssl.keystore.location": self.file("client.p12"),
            "ssl.keystore.password": SECRET,
            **{key.replace("_", "."): value for key, value in changed.items()},
        }
        file = self.folder / f"java-{len(changed)}-{time.monotonic_ns()}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value))
        return str(file)


def keytool(*arguments: str) -> None:
    subprocess.run([needs.program("keytool"), *arguments], capture_output=True, timeout=60, check=True)


@pytest.fixture(scope="module")
def secured(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    folder = tmp_path_factory.mktemp("tls")
    client = client_identity()
    for name, data in {
        "authority.pem": authority().certificate_pem,
        "other.pem": authority("Another authority").certificate_pem,
        "client.pem": client.chain_pem,
        "client.key": client.key_pem,
        "client.p12": client.pkcs12(SECRET),
        "node.p12": node_identity().pkcs12(SECRET),
        "ours.p12": authority().truststore(SECRET),
        "other.p12": authority("Another authority").truststore(SECRET),
    }.items():
        (folder / name).write_bytes(data)
    store = str(folder / "keytool.p12")
    keytool("-importcert", "-noprompt", "-alias", "a", "-file", str(folder / "authority.pem"), "-keystore", store,
            "-storetype", "PKCS12", "-storepass", SECRET)  # fmt: skip
    port, secured_port = steady_port(), steady_port()
    points = f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1},SSL://localhost:{secured_port}"
    node = make_node(
        against,
        {
            "listeners": points,
            "advertised.listeners": points,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
            "ssl.keystore.location": str(folder / "node.p12"),
            "ssl.keystore.password": SECRET,
            "ssl.truststore.location": store,
            "ssl.truststore.password": SECRET,
            "ssl.client.auth": "required",
            "message.max.bytes": str(2 * MB),
        },
        port=port,
    )
    try:
        node.start()
        yield SecuredNode(node, f"localhost:{secured_port}", folder)
    finally:
        node.close()


def values(count: int) -> list[bytes]:
    return [bytes([65 + index]) * (MB - 1000) for index in range(count)]


def test_kafka_python(secured: SecuredNode) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    sent = values(8)
    producer = KafkaProducer(**secured.kafka_python(), acks="all", max_request_size=2 * MB)
    for value in sent:
        producer.send("kafka-python", value, partition=0).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        **secured.kafka_python(), auto_offset_reset="earliest", max_partition_fetch_bytes=3 * MB, group_id=None
    )
    consumer.assign([TopicPartition("kafka-python", 0)])
    read: list[bytes] = []

    def poll() -> bool:
        for records in consumer.poll(timeout_ms=1000).values():
            read.extend(record.value for record in records)
        return len(read) >= len(sent)

    wait_until(poll, "every record comes back")
    consumer.close()
    assert read == sent


def test_librdkafka(secured: SecuredNode) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    sent = values(8)
    producer = Producer({**secured.librdkafka(), "message.max.bytes": 2 * MB, "acks": "all"})
    for value in sent:
        producer.produce("librdkafka", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**secured.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("librdkafka", 0, 0)])
    read = []

    def poll() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
        return len(read) >= len(sent)

    wait_until(poll, "every record comes back")
    consumer.close()
    assert read == sent


def test_java_with_stores_of_keytool_and_ours(secured: SecuredNode) -> None:
    """The trust store is that of keytool, then that of `pykbroker.tls.authority`."""
    kafka_libs()
    lines = "".join(f"{chr(97 + index) * 300_000}\n" for index in range(3))
    where = ["--bootstrap-server", secured.address, "--topic", "java", "--command-config"]
    run_shared("org.apache.kafka.tools.ConsoleProducer", [*where, secured.java(), "--sync"], stdin=lines)
    ours = secured.java(ssl_truststore_location=secured.file("ours.p12"))
    read = run_shared(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [*where, ours, "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000"],
    ).out
    assert read == lines


@pytest.mark.parametrize("changed", ["ssl_truststore_location", "ssl_keystore_location"])
def test_java_says_why_it_cannot_connect(secured: SecuredNode, changed: str) -> None:
    """Java uses another authority, or no certificate of its own."""
    kafka_libs()
    if changed == "ssl_truststore_location":
        properties = secured.java(ssl_truststore_location=secured.file("other.p12"))
    else:
        properties = secured.java(ssl_keystore_location="", ssl_keystore_password="")
    done = run_shared(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", secured.address, "--command-config", properties, "--list"],
        check=False,
    )
    assert done.status != 0
    assert "SslAuthenticationException" in done.out + done.err


@pytest.mark.parametrize("changed", ["ssl.ca.location", "ssl.certificate.location"])
def test_librdkafka_says_why_it_cannot_connect(secured: SecuredNode, changed: str) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    properties = {**secured.librdkafka(), "error_cb": errors.append}
    if changed == "ssl.ca.location":
        properties[changed] = secured.file("other.pem")
    else:
        del properties["ssl.certificate.location"], properties["ssl.key.location"]
    producer = Producer(properties)

    def heard() -> bool:
        producer.poll(0.2)
        return any("certificate" in error.str() for error in errors)

    wait_until(heard, "an error about certificates")


def s_client(secured: SecuredNode, *arguments: str, stdin: str = "") -> str:
    command = [needs.program("openssl"), "s_client", "-connect", secured.address, *arguments]
    client = ["-cert", secured.file("client.pem"), "-key", secured.file("client.key")]
    done = subprocess.run(
        [*command, *client, "-CAfile", secured.file("authority.pem")],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(secured: SecuredNode, version: str) -> None:
    said = s_client(secured, version, "-cipher", "ALL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in said
    assert "alert protocol version" in said


def test_there_is_no_compression_and_the_newest_version(secured: SecuredNode) -> None:
    said = s_client(secured, "-comp")
    assert "TLSv1.3, Cipher is TLS_" in said
    assert "Compression: NONE" in said
    assert "Verify return code: 0 (ok)" in said


def test_renegotiation_is_refused(secured: SecuredNode, against: str) -> None:
    """`R` requests a renegotiation. Java ends the connection in its own way."""
    said = s_client(secured, "-tls1_2", stdin="R\n")
    assert "RENEGOTIATING" in said
    if against == "pykbroker":
        assert "no renegotiation" in said
