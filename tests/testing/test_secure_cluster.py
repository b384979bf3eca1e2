"""Nodes whose clients must authenticate: every node serves users, and none else, also after it was killed."""

from __future__ import annotations

import confluent_kafka
import pytest
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from pykbroker.config.kinds import ConfigError
from pykbroker.testing import SecureCluster
from pykbroker_wire.messages.metadata import MetadataRequest
from testkit.nodes.wire import Closed, Wire

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120


def send(settings: dict[str, object], topic: str, value: bytes) -> int:
    """Return how many records were not acknowledged."""
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, value)
    left: int = producer.flush(PATIENCE_SECONDS)
    return left


def test_each_node_knows_the_users_and_serves_nobody_else() -> None:
    with SecureCluster({"carol": "a password"}) as cluster:
        cluster.create_topic("orders")
        for number in cluster.nodes:
            settings = {**cluster.confluent("carol"), "bootstrap.servers": cluster.address(number)}
            assert send(settings, "orders", b"%d" % number) == 0
            with Wire(cluster.address(number), timeout=PATIENCE_SECONDS) as wire, pytest.raises((Closed, OSError)):
                wire.call(MetadataRequest(topics=[]))
        lost = cluster.leader("orders")
        assert lost is not None
        cluster.kill(lost)
        assert send(cluster.confluent("carol"), "orders", b"after") == 0
        cluster.start(lost)
        cluster.wait_until_in_sync()
        assert {record.value for record in cluster.records("orders")} == {b"1", b"2", b"3", b"after"}
        file = cluster.properties_file("carol")
        with open(file, encoding="utf-8") as text:
            assert "SCRAM-SHA-512" in text.read()
        with pytest.raises(ValueError, match="there is no user 'bob'"):
            cluster.kafka_python("bob")


def test_a_certificate_and_acls() -> None:
    with SecureCluster(protocol="SSL", acls=True, nodes=2) as cluster:
        cluster.create_topic("orders")
        assert send(cluster.confluent("admin"), "orders", b"one") == 0
        producer = KafkaProducer(**cluster.kafka_python("bob"))
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("orders", b"two").get(PATIENCE_SECONDS)
        producer.close()
        assert [record.value for record in cluster.records("orders")] == [b"one"]


def test_what_it_is_not() -> None:
    with pytest.raises(ConfigError, match="mechanism NTLM is not one of"):
        SecureCluster(mechanism="NTLM")
    cluster = SecureCluster(nodes=1)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.kafka_python("alice")
    with cluster:
        first = cluster.bootstrap_servers
        cluster.stop()
        cluster.start()
        assert cluster.bootstrap_servers != first
        assert send(cluster.confluent("alice"), "again", b"one") == 0
