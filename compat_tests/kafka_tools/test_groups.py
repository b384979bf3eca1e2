"""kafka-consumer-groups and kafka-groups."""

from __future__ import annotations

from datetime import UTC, datetime

from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until

COMMAND = "consumer.group.ConsumerGroupCommand"


def test_a_group_from_its_first_member_to_its_deletion(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    group = f"group-{topic}"
    client = ConfluentClient()
    client.produce(broker.bootstrap, topic, [Record(None, b"%d" % i, (), NOW_MS + i, i % 2) for i in range(10)])
    member = client.member(broker.bootstrap, topic, group)
    try:
        wait_until(lambda: len(member.records()) == 10, "the member has read everything")
        (seen,) = table(tools.run(COMMAND, "--describe", "--group", group, "--members"))
        assert (seen["GROUP"], seen["#PARTITIONS"]) == (group, "2")
        assert seen["CLIENT-ID"] == "rdkafka"
        assert seen["CONSUMER-ID"].startswith("rdkafka-")
        assert seen["HOST"] in ("/127.0.0.1", "/0:0:0:0:0:0:0:1")
        (state,) = table(tools.run(COMMAND, "--describe", "--group", group, "--state"))
        assert group in state.values()
        assert {"range", "Stable", "1"} <= set(tools.run(COMMAND, "--describe", "--group", group, "--state").split())
        refused = tools.run(COMMAND, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused
    finally:
        member.leave()

    rows = table(tools.run(COMMAND, "--describe", "--group", group))
    wanted = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert [[row[name] for name in wanted] for row in rows] == [[group, topic, str(p), "5", "5", "0"] for p in (0, 1)]
    assert [group, "Empty"] in [line.split() for line in tools.run(COMMAND, "--list", "--state").splitlines()]
    listed = [line.split()[:2] for line in tools.run("GroupsCommand", "--list").splitlines()]
    assert [group, "Classic"] in listed

    moved = table(
        tools.run(COMMAND, "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-2", "--execute")
    )
    assert {(row["PARTITION"], row["NEW-OFFSET"]) for row in moved} == {("0", "3"), ("1", "3")}
    rows = table(tools.run(COMMAND, "--describe", "--group", group))
    assert [row["LAG"] for row in rows] == ["2", "2"]

    deleted = tools.run(COMMAND, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert [topic, "1", "Successful"] in [line.split() for line in deleted.splitlines()]
    rows = table(tools.run(COMMAND, "--describe", "--group", group))
    assert [row["PARTITION"] for row in rows] == ["0"]

    assert "was successful" in tools.run(COMMAND, "--delete", "--group", group)
    assert group not in tools.run(COMMAND, "--list").split()


def test_offsets_are_reset_by_time(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=1)
    group = f"group-{topic}"
    records = [Record(None, b"%d" % i, (), NOW_MS + 1000 * i, 0) for i in range(10)]
    ConfluentClient().produce(broker.bootstrap, topic, records)
    args = ["--reset-offsets", "--group", group, "--topic", topic, "--execute"]
    (moved,) = table(tools.run(COMMAND, *args, "--to-earliest"))
    assert moved["NEW-OFFSET"] == "0"
    when = datetime.fromtimestamp((NOW_MS + 3500) / 1000, UTC)
    (moved,) = table(
        tools.run(COMMAND, *args, "--to-datetime", f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z")
    )
    assert moved["NEW-OFFSET"] == "4"
    (moved,) = table(tools.run(COMMAND, *args, "--to-latest"))
    assert moved["NEW-OFFSET"] == "10"
