"""Tests of an application in whose environment pykbroker was installed with the application's own kafka-python.

test_installed.py runs this file with other Pythons, so it imports only installed packages and nothing of this
repository.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from pykbroker.testing import Broker, Cluster, SecureBroker
from pykbroker.testing.faults.rule_set import Faults
from pykbroker.testing.kafka_test_utils import KafkaTestUtils, KafkaUtils


def passed_on(topic: str, settings: dict[str, Any]) -> list[bytes]:
    """Return the values that a consumer reads from a producer's topic."""
    producer = KafkaProducer(**settings)
    for number in range(20):
        producer.send(topic, key=b"k", value=b"%d" % number)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=f"{topic}-readers", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    values = [next(consumer).value for _ in range(20)]
    consumer.commit()
    consumer.close()
    return values


EXPECTED = [b"%d" % number for number in range(20)]


def test_a_broker(kafka_broker: Broker, kafka_topics: Callable[[str], str]) -> None:
    assert passed_on(kafka_topics("orders"), {"bootstrap_servers": kafka_broker.bootstrap_servers}) == EXPECTED


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(kafka_broker: Broker, kafka_topics: Callable[[str], str], codec: str) -> None:
    topic = kafka_topics("orders")
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, compression_type=codec)
    producer.send(topic, b"value " * 100).get(60)
    producer.close()
    assert [record.value for record in kafka_broker.records(topic)] == [b"value " * 100]


def test_faults(kafka_broker: Broker, kafka_faults: Faults, kafka_topics: Callable[[str], str]) -> None:
    topic = kafka_topics("orders")
    fault = kafka_faults.add("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, retries=5)
    producer.send(topic, b"one").get(60)
    producer.close()
    assert fault.acted == 2


def test_a_secured_broker(kafka_broker_secure: SecureBroker, kafka_topics: Callable[[str], str]) -> None:
    settings = kafka_broker_secure.kafka_python("alice")
    assert (settings["security_protocol"], settings["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert passed_on(kafka_topics("orders"), settings) == EXPECTED


def test_a_cluster(kafka_cluster: Cluster, kafka_topics: Callable[[str], str]) -> None:
    assert passed_on(kafka_topics("orders"), {"bootstrap_servers": kafka_cluster.bootstrap_servers}) == EXPECTED


def test_the_helpers_of_spark() -> None:
    with KafkaUtils() as utils:
        utils.create_topics(["pairs"], num_partitions=2)
        utils.create_topics(["pairs"])
        utils.send_messages("pairs", [("k", 1), (None, "v")])
        utils.delete_topics(["pairs", "absent"])
    with KafkaTestUtils() as utils:
        utils.createTopic("t", 2)
        utils.addPartitions("t", 3)
        assert [message for message, _ in utils.sendMessages("t", ["a", "b"], partition=2)] == ["a", "b"]
        assert utils.getLatestOffsets(["t"]) == {("t", 0): 0, ("t", 1): 0, ("t", 2): 2}


def test_the_commands_of_a_broker_need_nothing_else(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pykbroker", *words], capture_output=True, text=True, timeout=60, check=False
        )

    assert run("version").returncode == 0
    assert run("start", "--help").stdout.startswith("Usage: pykbroker start")
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:0\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    assert run("format", str(properties)).stdout.startswith(f"Formatting {tmp_path / 'data'}")
    assert run("health", "--socket", str(tmp_path / "none")).returncode == 1
    asked = run("topics", "list")
    if importlib.util.find_spec("click") is None:
        assert asked.returncode == 2
        assert asked.stderr.startswith("pykbroker: `pykbroker topics` needs more packages: pip install 'click")
    node = subprocess.Popen(
        [sys.executable, "-m", "pykbroker", "start", "--ephemeral", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert node.stdout is not None
    try:
        said, _, address = node.stdout.readline().strip().rpartition(" ")
        assert said == "pykbroker is ready:"
        if importlib.util.find_spec("click") is not None:
            assert run("topics", "create", "t", "-b", address).returncode == 0
            assert "t" in run("topics", "list", "-b", address).stdout.split()
    finally:
        node.terminate()
        assert node.wait(60) == 0
        node.stdout.close()
