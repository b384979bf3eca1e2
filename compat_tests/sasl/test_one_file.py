"""A server.properties that secures Apache Kafka secures pykbroker without a change, with TLS from PEM, SCRAM (between
brokers too) and ACLs. Both run it on the same directories, and the users and ACLs that one has made are valid in the
other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, TopicPartition

from compat_tests.on_disk.home import Home, Owner
from compat_tests.tool_server import run_shared
from testkit.certificates import authority, node_identity
from testkit.clients import PATIENCE_S, wait_until
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISM = "SCRAM-SHA-512"
TOPIC = "orders"
ADMIN = ("admin", "admin-secret")


@dataclass(frozen=True)
class SecuredHome:
    home: Home
    stores: Path

    def kafka_python(self, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.home.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.stores / "authority.pem"),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }

    def librdkafka(self, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.home.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.stores / "authority.pem"),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }

    def tool(self, main: str, user: str, password: str, *words: str, stdin: str | None = None) -> str:
        """Run a tool of Apache Kafka as this user."""
        file = self.stores / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.stores / 'authority.pem'}\nsasl.mechanism={MECHANISM}\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="{password}";\n'
        )
        where = ["--bootstrap-server", self.home.bootstrap, "--command-config", str(file)]
        return run_shared(main, [*where, *words], stdin=stdin).out


def properties(stores: Path, port: int) -> dict[str, str]:
    """Return what people write for one node; the controller listener is plain, and on loopback."""
    identity = node_identity()
    (stores / "node.pem").write_bytes(identity.key_pem + identity.chain_pem)
    (stores / "authority.pem").write_bytes(authority().certificate_pem)
    user, password = ADMIN
    return {
        "listeners": f"SASL_SSL://localhost:{port},CONTROLLER://localhost:{port + 1}",
        "advertised.listeners": f"SASL_SSL://localhost:{port}",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{MODULE} required username="{user}" '
        f'password="{password}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(stores / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(stores / "authority.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredHome]:
    kafka_libs()
    with Home() as home:
        home.configure(properties(tmp_path, home.port))
        yield SecuredHome(home, tmp_path)


def read(secured: SecuredHome, count: int) -> list[bytes]:
    """Return all values of the topic, read by kafka-python as admin."""
    consumer = KafkaConsumer(**secured.kafka_python(*ADMIN), auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(TOPIC, 0)])
    values: list[bytes] = []

    def poll() -> bool:
        for records in consumer.poll(timeout_ms=1000).values():
            values.extend(record.value for record in records)
        return len(values) >= count

    wait_until(poll, "every record comes back")
    consumer.close()
    return values


def refusal(secured: SecuredHome, user: str, password: str) -> KafkaError:
    """Return the error that librdkafka reports to a producer of this user."""
    told: list[KafkaError] = []
    producer = confluent_kafka.Producer({**secured.librdkafka(user, password), "error_cb": told.append})
    producer.produce(TOPIC, b"denied", on_delivery=lambda error, _: told.append(error) if error else None)

    def heard() -> bool:
        producer.poll(0.2)
        return bool(told)

    wait_until(heard, "the producer hears of it")
    producer.purge()
    return told[0]


def make_topic(secured: SecuredHome) -> None:
    admin = AdminClient(secured.librdkafka(*ADMIN))
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 1, 1)]).values():
        future.result(PATIENCE_S)


def life(secured: SecuredHome, owner: Owner, written_before: list[bytes]) -> list[bytes]:
    """Create a user, who is refused, then allowed, and then writes. Return all values of the topic."""
    user, password = f"by-{owner}", f"secret-of-{owner}"
    credential = ["--alter", "--entity-type", "users", "--entity-name", user]
    credential += ["--add-config", f"{MECHANISM}=[iterations=4096,password={password}]"]
    secured.tool("kafka.admin.ConfigCommand", *ADMIN, *credential)
    assert refusal(secured, user, "wrong").code() == KafkaError._AUTHENTICATION
    assert refusal(secured, user, password).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allowed = ["--add", "--allow-principal", f"User:{user}", "--operation", "Write", "--topic", TOPIC]
    secured.tool("org.apache.kafka.tools.AclCommand", *ADMIN, *allowed)
    console = "org.apache.kafka.tools.ConsoleProducer"
    secured.tool(console, user, password, "--topic", TOPIC, "--sync", stdin=f"one of {owner}\ntwo of {owner}\n")
    values = [*written_before, f"one of {owner}".encode(), f"two of {owner}".encode()]
    assert read(secured, len(values)) == values
    return values


def test_apache_kafka_and_then_pykbroker_from_one_file(secured: SecuredHome) -> None:
    home = secured.home
    home.format("kafka", "--add-scram", f"{MECHANISM}=[name={ADMIN[0]},password={ADMIN[1]}]")
    home.start("kafka")
    make_topic(secured)
    values = life(secured, "kafka", [])
    home.stop()
    home.start("pykbroker")
    assert read(secured, len(values)) == values
    values = life(secured, "pykbroker", values)
    # The user and the ACL that Apache Kafka has made.
    producer = confluent_kafka.Producer(secured.librdkafka("by-kafka", "secret-of-kafka"))
    producer.produce(TOPIC, b"again")
    assert producer.flush(PATIENCE_S) == 0
    assert read(secured, len(values) + 1) == [*values, b"again"]
    home.stop()


def test_pykbroker_formats_and_apache_kafka_goes_on(secured: SecuredHome) -> None:
    home = secured.home
    home.format("pykbroker", "--add-scram", f"{MECHANISM}=[name={ADMIN[0]},password={ADMIN[1]}]")
    home.start("pykbroker")
    make_topic(secured)
    producer = confluent_kafka.Producer(secured.librdkafka(*ADMIN))
    producer.produce(TOPIC, b"one")
    assert producer.flush(PATIENCE_S) == 0
    home.stop()
    home.start("kafka")
    assert read(secured, 1) == [b"one"]
    home.stop()
