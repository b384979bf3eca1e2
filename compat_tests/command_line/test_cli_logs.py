"""`pykbroker logs` on the directories of the node under test and of Apache Kafka; compat_tests/on_disk compares the
text with DumpLogSegments."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from compat_tests.node import Node
from compat_tests.topics import Topics


@pytest.mark.parametrize("kind", ["broker", "apache_kafka"])
def test_the_files_of_a_topic(kind: str, request: pytest.FixtureRequest) -> None:
    node: Node = request.getfixturevalue(kind)
    topic = Topics(node.bootstrap).create(partitions=2)
    producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "zstd", "log_level": 0})
    for number in range(100):
        producer.produce(topic, f"value {number}".encode(), f"key {number}".encode(), number % 2)
    assert producer.flush(60) == 0

    def logs(*words: str) -> str:
        command = [sys.executable, "-m", "pykbroker", "logs", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    folders = [str(node.data_dir / f"{topic}-{number}") for number in (0, 1)]
    # In Apache Kafka the indexes of a file that is written to are preallocated, and its own tool complains of that too.
    found = logs("dump", "--print-data-log", *(f"{folder}/00000000000000000000.log" for folder in folders))
    assert [f"payload: value {number}\n" in found for number in range(100)] == [True] * 100
    assert found.count(" key: key ") == 100
    assert json.loads(logs("verify", "-o", "json", *folders))["findings"] == []
