"""kafka-consumer-groups: resets by every option, with and without execution, many groups at once, deletions,
refusals."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record

COMMAND = "consumer.group.ConsumerGroupCommand"
#: The time between two records of a partition, so large that a slow machine does not skip one in a test.
STEP_MS = 100_000
COUNT = 10


def fill(broker: Node, topic: str, partitions: int = 2) -> None:
    """Write records: number i of each partition has the time NOW_MS + i * STEP_MS."""
    records = [
        Record(None, b"%d" % i, (), NOW_MS + STEP_MS * i, partition)
        for partition in range(partitions)
        for i in range(COUNT)
    ]
    ConfluentClient().produce(broker.bootstrap, topic, records)


def moved(said: str) -> dict[tuple[str, str, int], int]:
    """Parse a table of resets: (group, topic, partition) -> new offset."""
    lines = said[said.index("GROUP") :]
    return {
        (row["GROUP"], row["TOPIC"], int(row["PARTITION"])): int(row["NEW-OFFSET"])
        for part in lines.split("GROUP ")[1:]
        for row in table("GROUP " + part)
    }


def committed(tools: Tools, group: str) -> dict[tuple[str, int], int]:
    rows = table(tools.run(COMMAND, "--describe", "--offsets", "--verbose", "--group", group))
    return {
        (row["TOPIC"], int(row["PARTITION"])): int(row["CURRENT-OFFSET"])
        for row in rows
        if row.get("CURRENT-OFFSET", "-").isdigit()
    }


def test_resets_by_every_option(tools: Tools, topics: Topics, broker: Node, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    fill(broker, topic)
    group = f"resets-{topic}"

    def reset(*how: str, of: str = topic, execute: bool = True) -> dict[int, int]:
        do = "--execute" if execute else "--dry-run"
        found = moved(tools.run(COMMAND, "--reset-offsets", "--group", group, "--topic", of, *how, do))
        return {partition: offset for (_, _, partition), offset in found.items()}

    at = datetime.fromtimestamp((NOW_MS + 3.5 * STEP_MS) / 1000, UTC)
    # The first of them creates the group.
    assert reset("--to-offset", "6") == {0: 6, 1: 6}
    assert reset("--to-earliest", execute=False) == {0: 0, 1: 0}
    assert committed(tools, group) == {(topic, 0): 6, (topic, 1): 6}
    assert reset("--shift-by", "-2", of=f"{topic}:1") == {1: 4}
    assert reset("--shift-by", "3", of=f"{topic}:0,1") == {0: 9, 1: 7}
    # A target beyond either end becomes the end.
    assert reset("--shift-by", "5") == {0: 10, 1: 10}
    assert reset("--shift-by", "-100", of=f"{topic}:0") == {0: 0}
    assert reset("--to-current") == {0: 0, 1: 10}
    assert reset("--to-latest") == {0: 10, 1: 10}
    assert reset("--to-datetime", f"{at:%Y-%m-%dT%H:%M:%S}.000") == {0: 4, 1: 4}
    seconds = int(time.time() - (NOW_MS + 6.5 * STEP_MS) / 1000)
    assert reset("--by-duration", f"PT{seconds}S", of=f"{topic}:0") == {0: 7}
    assert committed(tools, group) == {(topic, 0): 7, (topic, 1): 4}

    now = ["--reset-offsets", "--group", group, "--topic", topic, "--to-current"]
    exported = tools.run(COMMAND, *now, "--export", "--dry-run")
    assert sorted(exported.split()) == [f"{topic},0,7", f"{topic},1,4"]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,2\n{topic},1,3\n")
    found = moved(tools.run(COMMAND, "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute"))
    assert found == {(group, topic, 0): 2, (group, topic, 1): 3}
    assert committed(tools, group) == {(topic, 0): 2, (topic, 1): 3}


def test_many_groups_and_topics_at_once(tools: Tools, topics: Topics, broker: Node) -> None:
    first, second = topics.create(partitions=1), topics.create(partitions=1)
    fill(broker, first, 1)
    fill(broker, second, 1)
    groups = [f"many-{number}-{first}" for number in (1, 2)]
    for group in groups:
        args = ["--reset-offsets", "--group", group, "--topic", first, "--topic", f"{second}:0"]
        found = moved(tools.run(COMMAND, *args, "--to-earliest", "--execute"))
        assert found == {(group, first, 0): 0, (group, second, 0): 0}

    every = [word for group in groups for word in ("--group", group)]
    found = moved(tools.run(COMMAND, "--reset-offsets", *every, "--all-topics", "--to-latest", "--execute"))
    assert found == {(group, topic, 0): COUNT for group in groups for topic in (first, second)}
    dry = moved(
        tools.run(COMMAND, "--reset-offsets", "--all-groups", "--topic", first, "--to-offset", "3", "--dry-run")
    )
    assert {dry[group, first, 0] for group in groups} == {3}

    said = tools.run(COMMAND, "--describe", "--all-groups", "--offsets")
    rows = {(row["GROUP"], row["TOPIC"]) for part in said.split("GROUP ")[1:] for row in table("GROUP " + part)}
    assert {(group, topic) for group in groups for topic in (first, second)} <= rows
    states = tools.run(COMMAND, "--describe", "--all-groups", "--state")
    for group in groups:
        assert any(group in line and "Empty" in line for line in states.splitlines())
    assert table(tools.run(COMMAND, "--describe", "--group", groups[0], "--members", "--verbose")) == []

    listed = [line.split() for line in tools.run(COMMAND, "--list", "--type", "classic").splitlines()]
    assert {group for group in groups if any(line[:1] == [group] for line in listed)} == set(groups)
    assert not set(groups) & set(tools.run(COMMAND, "--list", "--type", "consumer").split())
    assert set(groups) <= set(tools.run(COMMAND, "--list", "--state", "empty,dead").split())
    assert not set(groups) & set(tools.run(COMMAND, "--list", "--state", "Stable").split())
    assert set(groups) <= set(tools.run("GroupsCommand", "--list", "--group-type", "classic").split())
    assert not set(groups) & set(tools.run("GroupsCommand", "--list", "--share").split())

    gone = tools.run(COMMAND, "--delete-offsets", "--group", groups[0], "--topic", first, "--topic", f"{second}:0")
    outcomes = {tuple(line.split()[:3]) for line in gone.splitlines()}
    assert {(first, "0", "Successful"), (second, "0", "Successful")} <= outcomes
    assert committed(tools, groups[0]) == {}
    said = tools.run(COMMAND, "--delete", *every, "--group", f"none-{first}")
    assert "GroupIdNotFoundException" in said
    left = tools.run(COMMAND, "--list").split()
    assert not set(groups) & set(left)
