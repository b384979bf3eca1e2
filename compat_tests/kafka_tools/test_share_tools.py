"""Apache Kafka's other tools of share groups: the console, verifiable and performance consumers, the formatters of the
records in `__share_group_state` and `__consumer_offsets`, and the options that kafka-share-groups has from 4.4 on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compat_tests.kafka_tools.conftest import TOOLS, Tools
from compat_tests.kafka_tools.test_share_groups import offsets
from compat_tests.node import Node
from compat_tests.our_tools.both import ours
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from pykbroker.tools.cluster import configs
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings
from testkit.clients import NOW_MS, Record
from testkit.oracle.kafka import NEWEST, kafka_libs

COUNT = 20
PRINT = [
    "--formatter-property", "print.delivery=true",
    "--formatter-property", "print.partition=true",
    "--formatter-property", "print.offset=true",
]  # fmt: skip


@pytest.fixture
def topic(topics: Topics, broker: Node) -> str:
    """A topic of two partitions with ten records in each, and a group `group-TOPIC` that begins with them."""
    name = topics.create(partitions=2)
    records = [Record(None, b"%d" % number, (), NOW_MS + number, number % 2) for number in range(COUNT)]
    ConfluentClient().produce(broker.bootstrap, name, records)
    with AskedCluster(ClusterSettings((broker.bootstrap,))) as cluster:
        changes = configs.changes_of({"share.auto.offset.reset": "earliest"})
        configs.alter(cluster, (configs.ResourceKind.GROUP, f"group-{name}"), changes)
    return name


def consumed(tools: Tools, topic: str, count: int, *words: str) -> list[tuple[str, int]]:
    """Return place and value, and the delivery count, of each record that the console consumer prints."""
    printed = tools.run(
        "consumer.ConsoleShareConsumer", "--topic", topic, "--group", f"group-{topic}",
        "--max-messages", str(count), "--timeout-ms", "30000", *PRINT, *words,
    )  # fmt: skip
    found = [
        re.fullmatch(r"Partition:(\d+)\tOffset:(\d+)\tDelivery:(\d+)\t(\d+)", line) for line in printed.split("\n")[:-1]
    ]
    assert all(found), printed
    return [(f"{one[1]}-{one[2]}-{one[4]}", int(one[3])) for one in found if one is not None]


def test_the_console_consumer_accepts_releases_and_rejects(tools: Tools, topic: str) -> None:
    every = {f"{number % 2}-{number // 2}-{number}" for number in range(COUNT)}
    released = consumed(tools, topic, 4, "--release")
    rejected = consumed(tools, topic, 3, "--reject")
    assert len(released) == 4
    assert len(rejected) == 3
    accepted = consumed(tools, topic, COUNT - 3)
    assert {place for place, _ in rejected} | {place for place, _ in accepted} == every
    # A released record was delivered once more, and no rejected record came again.
    assert {count for place, count in accepted if place in dict(released)} <= {2, 3}
    assert not dict(rejected).keys() & dict(accepted).keys()


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_consumer_acknowledges_every_record(tools: Tools, topic: str, mode: str) -> None:
    said = tools.run(
        "VerifiableShareConsumer", "--topic", topic, "--group-id", f"group-{topic}", "--acknowledgement-mode", mode,
        "--max-messages", str(COUNT), "--verbose",
    )  # fmt: skip
    events: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    names = Counter(event["name"] for event in events)
    assert names["startup_complete"] == names["shutdown_complete"] == 1
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == COUNT
    values = sorted(int(event["value"]) for event in events if event["name"] == "record_data")
    assert values == list(range(COUNT))
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == COUNT


def test_the_performance_tool_counts_every_record(tools: Tools, topic: str) -> None:
    said = tools.run(
        "ShareConsumerPerformance", "--topic", topic, "--group", f"group-{topic}", "--num-records", str(COUNT),
    )  # fmt: skip
    heads, row = ([cell.strip() for cell in line.split(", ")] for line in said.splitlines() if ", " in line)
    assert dict(zip(heads, row, strict=True))["data.consumed.in.nMsg"] == str(COUNT)


def documents(printed: str) -> list[dict[str, Any]]:
    """Return the JSON documents of a formatter, which writes no line feed between them."""
    decoder, place, found = json.JSONDecoder(), 0, []
    while (place := printed.find("{", place)) >= 0:
        document, place = decoder.raw_decode(printed, place)
        found.append(document)
    return found


def read(tools: Tools, topic: str, formatter: str) -> list[dict[str, Any]]:
    printed = tools.run(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--timeout-ms", "3000",
        "--formatter", f"{TOOLS}.consumer.{formatter}",
    )  # fmt: skip
    return documents(printed)


def test_the_formatters_read_the_records_of_share_groups(tools: Tools, topic: str) -> None:
    consumed(tools, topic, COUNT)
    group = f"group-{topic}"
    states = [
        one for one in read(tools, "__share_group_state", "group.share.ShareGroupStateMessageFormatter")
        if one["key"]["data"]["groupId"] == group
    ]  # fmt: skip
    assert {one["key"]["data"]["partition"] for one in states} == {0, 1}
    assert {one["key"]["type"] for one in states} <= {0, 1}
    assert max(one["value"]["data"]["startOffset"] for one in states) >= 0
    groups = [one for one in read(tools, "__consumer_offsets", "ShareGroupMessageFormatter")
              if one["key"]["data"]["groupId"] == group]  # fmt: skip
    assert {one["key"]["type"] for one in groups} == {10, 11, 12, 13, 14, 15}


def newest(broker: Node, words: Sequence[str]) -> str:
    """Return the output of kafka-share-groups of 4.4."""
    kafka_libs(NEWEST)
    where = ["--bootstrap-server", broker.bootstrap]
    main = f"{TOOLS}.consumer.group.ShareGroupCommand"
    return run_shared(main, [*where, *words], version=NEWEST).out


def test_resets_with_the_options_of_4_4(tools: Tools, topic: str, broker: Node, tmp_path: Path) -> None:
    """Apache Kafka's tool of 4.4 and ours print the same, and both change the same."""
    file = tmp_path / "starts.csv"
    file.write_text(f"{topic},0,3\n{topic},1,7\n")
    at = ["--bootstrap-server", broker.bootstrap]

    def printed(*words: str, group: str = "theirs") -> list[str]:
        given = ["--reset-offsets", "--group", f"{group}-{topic}", *words]
        said = newest(broker, given) if group == "theirs" else ours("share-groups", [*at, *given]).out
        return sorted(line.replace(f"{group}-", "") for line in said.splitlines() if line.strip())

    for words, expected in (
        (("--topic", topic, "--to-offset", "4", "--execute"), {0: "4", 1: "4"}),
        (("--from-file", str(file), "--execute"), {0: "3", 1: "7"}),
        (("--all-topics", "--to-current", "--dry-run"), {0: "3", 1: "7"}),
        (("--all-topics", "--to-current", "--export", "--dry-run"), {0: "3", 1: "7"}),
    ):
        theirs, mine = printed(*words), printed(*words, group="our")
        assert [line.split() for line in mine] == [line.split() for line in theirs], words
        for group in ("theirs", "our"):
            found = offsets(tools, f"{group}-{topic}")
            assert {partition: start for partition, (start, _) in found.items()} == expected
