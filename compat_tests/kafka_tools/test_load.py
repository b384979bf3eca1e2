"""kafka-producer-perf-test, kafka-consumer-perf-test, VerifiableProducer, VerifiableConsumer, the latency tool."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from compat_tests.kafka_tools.conftest import Tools
from compat_tests.node import Node
from compat_tests.our_tools.both import ours
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics


def events(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def fields(told: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return kind of event -> its fields, also those of places in it. Sorted, because Java prints them in changing
    order."""
    found = {}
    for event in told:
        nested = [place for value in event.values() if isinstance(value, list) for place in value]
        found[event["name"]] = sorted([*event, *(key for place in nested[:1] for key in place)])
    return found


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_perf_tools_write_and_read_every_record(
    tools: Tools, topics: Topics, broker: Node, compression: str
) -> None:
    topic = topics.create(partitions=3)
    written = tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1",
        "--command-property", f"compression.type={compression}", "acks=all",
    )  # fmt: skip
    assert written.splitlines()[-1].startswith("20000 records sent, ")
    read = ConfluentClient().consume(broker.bootstrap, topic)
    assert len(read) == 20000
    assert {len(r.value or b"") for r in read} == {200}
    consumed = tools.run("ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--timeout", "30000")
    assert consumed.splitlines()[-1].split(", ")[4] == "20000"


def test_the_verifiable_pair_agrees_on_every_record(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    sent = events(
        tools.alone(
            "VerifiableProducer",
            "--topic",
            topic,
            "--max-messages",
            "1000",
            "--acks",
            "-1",
            "--value-prefix",
            "7",
        )
    )
    acked = [e for e in sent if e["name"] == "producer_send_success"]
    assert sent[-1]["sent"] == sent[-1]["acked"] == len(acked) == 1000
    stored = {(r.partition, r.offset): r.value for r in ConfluentClient().consume(broker.bootstrap, topic)}
    assert {(e["partition"], e["offset"]): e["value"].encode() for e in acked} == stored

    seen = events(
        tools.alone(
            "VerifiableConsumer",
            "--topic",
            topic,
            "--group-id",
            f"group-{topic}",
            "--max-messages",
            "1000",
            "--reset-policy",
            "earliest",
            "--group-protocol",
            "classic",
        )
    )
    assert {p["partition"] for e in seen if e["name"] == "partitions_assigned" for p in e["partitions"]} == {0, 1}
    ranges = [p for e in seen if e["name"] == "records_consumed" for p in e["partitions"]]
    assert sum(p["count"] for p in ranges) == 1000
    committed = {p["partition"]: p["offset"] for e in seen if e["name"] == "offsets_committed" for p in e["offsets"]}
    for partition in (0, 1):
        mine = sorted((p["minOffset"], p["maxOffset"]) for p in ranges if p["partition"] == partition)
        expected = 0
        for first, last in mine:
            assert first == expected, "no gap and no repetition"
            expected = last + 1
        assert committed.get(partition, 0) == expected
    assert all(e["success"] for e in seen if e["name"] == "offsets_committed")

    # Our tools of these names print the same kinds of events, with the same fields.
    at = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    sent_by_ours = events(ours("verifiable-producer", [*at, "--max-messages", "3"]).out)
    assert fields(sent_by_ours) == fields(sent)
    seen_by_ours = events(
        ours("verifiable-consumer", [*at, "--group-id", f"ours-{topic}", "--max-messages", "1003"]).out
    )
    assert fields(seen_by_ours) == fields(seen)
    assert sum(p["count"] for e in seen_by_ours if e["name"] == "records_consumed" for p in e["partitions"]) == 1003


def test_the_latency_tool_gets_every_record_back(tools: Tools, broker: Node, topic: str) -> None:
    said = tools.run(
        "EndToEndLatency", "--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100"
    )
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+", said)
    # Our tool of this name prints the same lines.
    sizes = ["--num-records", "20", "--producer-acks", "all", "--record-size", "100"]
    mine = ours("e2e-latency", ["--bootstrap-server", broker.bootstrap, "--topic", topic, *sizes]).out
    assert [re.sub(r"[\d.]+(?=,| |$|\t)", "N", line) for line in mine.splitlines()] == [
        re.sub(r"[\d.]+(?=,| |$|\t)", "N", line) for line in said.splitlines()
    ]
