"""TLS, SASL and ACLs in the image, with variables as users write them for Apache Kafka's and Confluent's."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.container.conftest import NewContainer
from compat_tests.container.containers import SERVES
from compat_tests.container.test_image import published, variables
from testkit.certificates import authority, node_identity
from testkit.ports import steady_port

pytestmark = pytest.mark.timeout(900)

JAAS = """KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" user_bob="bob-secret";
};
"""


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder that is mounted as /etc/kafka/secrets; the user of the container may read it."""
    tmp_path.chmod(0o755)
    for name, data in {
        "node.p12": node_identity().pkcs12("storesecret"),
        "node.password": b"storesecret\n",
        "jaas.conf": JAAS.encode(),
        "admin.properties": (
            b"security.protocol=SASL_SSL\n"
            b"sasl.mechanism=PLAIN\n"
            b"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            b'username="admin" password="admin-secret";\n'
            b"ssl.truststore.type=PEM\n"
            b"ssl.truststore.location=/etc/kafka/secrets/authority.pem\n"
        ),
        "authority.pem": authority().certificate_pem,
    }.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o644)
    return tmp_path


@pytest.mark.parametrize("run", ["/etc/kafka/docker/run", "/etc/confluent/docker/run"])
def test_stores_credentials_a_jaas_file_and_acls(new_container: NewContainer, secrets: Path, run: str) -> None:
    from confluent_kafka import Producer

    port = steady_port()
    node = new_container(
        variables(
            port,
            KAFKA_LISTENERS=f"CONTROLLER://:29093,SASL_SSL://:{port},PLAINTEXT://127.0.0.1:19092",
            KAFKA_ADVERTISED_LISTENERS=f"SASL_SSL://localhost:{port},PLAINTEXT://localhost:19092",
            KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            KAFKA_SASL_ENABLED_MECHANISMS="PLAIN",
            KAFKA_SSL_KEYSTORE_FILENAME="node.p12",
            KAFKA_SSL_KEYSTORE_CREDENTIALS="node.password",
            KAFKA_SSL_KEY_CREDENTIALS="node.password",
            KAFKA_OPTS="-Djava.security.auth.login.config=/etc/kafka/secrets/jaas.conf",
            KAFKA_AUTHORIZER_CLASS_NAME="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            KAFKA_SUPER_USERS="User:admin;User:ANONYMOUS",
        ),
        options=[*published(port), "-v", f"{secrets}:/etc/kafka/secrets:ro"],
        command=[run],
    )
    log = node.wait_for(SERVES)
    assert "storesecret" not in log
    assert "admin-secret" not in log
    where = ("--bootstrap-server", f"localhost:{port}", "--command-config", "/etc/kafka/secrets/admin.properties")
    added = node.run("kafka-acls", *where, "--add", "--topic", "orders", "--allow-principal", "User:bob", "--producer")
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders" in added.stdout
    file = "/opt/kafka/config/server.properties" if "/kafka/" in run else "/etc/kafka/kafka.properties"
    assert node.run("stat", "-c", "%a", file).stdout.strip() == "600"
    failed = []
    producer = Producer(
        {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secrets / "authority.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "bob",
            "sasl.password": "bob-secret",
        }
    )
    producer.produce("orders", b"one", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]
