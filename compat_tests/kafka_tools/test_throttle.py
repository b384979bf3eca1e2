"""kafka-reassign-partitions with a throttle, on three pykbroker processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests.tool_server import run_shared
from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.trio import NUMBERS, Trio
from testkit.oracle.kafka import kafka_libs

TOPIC, BROKER = 2, 4
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
RATE = 1_000_000


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    kafka_libs()
    with Trio(tmp_path, "dynamic", {}) as found:
        found.serving(*NUMBERS)
        yield found
        assert not found.complaints()


def reassign(trio: Trio, plan: Path, *args: str) -> str:
    where = ["--bootstrap-server", trio.bootstrap, "--reassignment-json-file", str(plan)]
    return run_shared("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", [*where, *args]).out


def throttles(trio: Trio) -> dict[str, str]:
    """Return the lists of the topic, and the rates of any broker."""
    found: dict[str, str] = {}
    for number, wire in trio.wires():
        found |= {key: entry.value for key, entry in wire.describe(TOPIC, "t", LISTS).items()}
        rates = wire.describe(BROKER, str(number), RATES)
        found |= {key: entry.value for key, entry in rates.items() if entry.value is not None}
    return {key: value for key, value in found.items() if value}


@pytest.mark.slow
def test_a_reassignment_is_throttled_and_verify_takes_the_throttle_away(trio: Trio, tmp_path: Path) -> None:
    trio.create("t", (1, 2))
    producer = Producer({"bootstrap.servers": trio.bootstrap, "acks": "all"})
    for _ in range(8_000):
        producer.produce("t", b"x" * 1_000, partition=0)
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}), "utf-8"
    )
    began = time.monotonic()
    reassign(trio, plan, "--execute", "--throttle", str(RATE))
    assert throttles(trio) == {
        LISTS[0]: "0:1,0:2",
        LISTS[1]: "0:3",
        **dict.fromkeys(RATES, str(RATE)),
    }
    eventually("brokers 2 and 3 have the partition", lambda: trio.partitions("t")[0].replica_nodes == [2, 3])
    # The first fetch of 1 MB is never throttled, nor is the part of the last one above the rate.
    assert time.monotonic() - began > 4
    printed = reassign(trio, plan, "--verify")
    assert "Reassignment of partition t-0 is completed" in printed
    assert "Clearing broker-level throttles" in printed
    assert throttles(trio) == {}
    assert trio.same_logs("t")
