"""Testcontainers for Python: its stock KafkaContainer, with only the name of the image changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

from compat_tests.container.containers import PATIENCE_S
from compat_tests.container.host_clients import consume, produce

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_this_process")]


@pytest.mark.parametrize("kraft", [False, True], ids=["as it is", "with_kraft"])
def test_kafka_container(kraft: bool, tagged: str, used: ExitStack) -> None:
    from testcontainers.community.kafka import KafkaContainer

    kafka = KafkaContainer(tagged)
    if kraft:
        kafka.with_kraft()
    used.callback(kafka.stop)
    kafka.start(timeout=int(PATIENCE_S))
    produce(kafka.get_bootstrap_server(), "orders", ["one", "two", "three"])
    assert consume(kafka.get_bootstrap_server(), "orders", 3) == ["one", "two", "three"]
    # The module sets the replication factor of __consumer_offsets and not that of __transaction_state.
    commit(kafka.get_bootstrap_server(), "paid", ["four"])
    assert consume(kafka.get_bootstrap_server(), "paid", 1) == ["four"]
    # The module's reaction to the image's log is not a second start of the node.
    stdout, _ = kafka.get_logs()
    assert stdout.count(b"Kafka Server started") == 1


def test_kafka_container_in_a_network(tagged: str, network: str, used: ExitStack) -> None:
    """Its controller is reached by an alias there, and it advertises its address to other containers."""
    from testcontainers.community.kafka import KafkaContainer
    from testcontainers.core.network import Network

    there = Network()
    there.name = network
    kafka = KafkaContainer(tagged, network=there, network_aliases=["broker"]).with_kraft()
    used.callback(kafka.stop)
    kafka.start(timeout=int(PATIENCE_S))
    produce(kafka.get_bootstrap_server(), "orders", ["one"])
    asked = kafka.exec(["kafka-get-offsets", "--bootstrap-server", "broker:9092", "--topic", "orders"])
    assert (asked.exit_code, asked.output.decode()) == (0, "orders:0:1\n")


def commit(servers: str, topic: str, values: Sequence[str]) -> None:
    """Send values in a transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payments", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(PATIENCE_S)
