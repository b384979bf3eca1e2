"""Groups of the consumer protocol (KIP-848) in kafka-consumer-groups, kafka-groups and kafka-configs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient, ConfluentMember
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until

COMMAND = "consumer.group.ConsumerGroupCommand"


@pytest.fixture
def topic(topics: Topics, broker: Node) -> str:
    topic = topics.create(partitions=2)
    records = [Record(None, b"%d" % i, (), NOW_MS + i, i % 2) for i in range(10)]
    ConfluentClient().produce(broker.bootstrap, topic, records)
    return topic


@pytest.fixture
def member(topic: str, broker: Node) -> Iterator[ConfluentMember]:
    """A member of the group `group-<topic>` that has read everything."""
    options = {"group.protocol": "consumer", "heartbeat.interval.ms": None, "group.remote.assignor": "range"}
    member = ConfluentMember(broker.bootstrap, topic, f"group-{topic}", **options)
    wait_until(lambda: len(member.records()) == 10, "the member has read everything")
    yield member
    member.leave()


def test_a_group_of_the_consumer_protocol_is_described(tools: Tools, topic: str, member: ConfluentMember) -> None:
    group = f"group-{topic}"
    (seen,) = table(tools.run(COMMAND, "--describe", "--group", group, "--members"))
    assert (seen["GROUP"], seen["CLIENT-ID"], seen["#PARTITIONS"]) == (group, "rdkafka", "2")

    text = tools.run(COMMAND, "--describe", "--group", group, "--members", "--verbose")
    (line,) = [line.split() for line in text.splitlines() if line.startswith(group)]
    (heads,) = [line.split() for line in text.splitlines() if line.startswith("GROUP")]
    row = dict(zip(heads, line, strict=True))
    assert heads[-5:] == ["#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert row["CURRENT-ASSIGNMENT"] == row["TARGET-ASSIGNMENT"] == f"{topic}:0,1"
    assert row["CURRENT-EPOCH"] == row["TARGET-EPOCH"] == "2"

    text = tools.run(COMMAND, "--describe", "--group", group, "--state", "--verbose")
    (line,) = [line.split() for line in text.splitlines() if line.startswith(group)]
    # group, coordinator and its id, strategy, state, epochs of the group and of its target, members
    assert line[-5:] == ["range", "Stable", "2", "2", "1"]

    rows = table(tools.run(COMMAND, "--describe", "--group", group, "--verbose"))
    assert [row["PARTITION"] for row in rows] == ["0", "1"]
    assert "GroupNotEmptyException" in tools.run(COMMAND, "--delete", "--group", group)


def test_a_group_of_the_consumer_protocol_is_listed_and_deleted(
    tools: Tools, topic: str, member: ConfluentMember
) -> None:
    group = f"group-{topic}"
    listed = [line.split() for line in tools.run(COMMAND, "--list", "--type", "consumer", "--state").splitlines()]
    assert [group, "Consumer", "Stable"] in listed
    assert group not in tools.run(COMMAND, "--list", "--type", "classic")
    assert [group, "Consumer", "consumer"] in [
        line.split() for line in tools.run("GroupsCommand", "--list", "--consumer").splitlines()
    ]
    assert group in tools.run("GroupsCommand", "--list", "--group-type", "consumer", "--protocol", "consumer")
    assert group not in tools.run("GroupsCommand", "--list", "--group-type", "classic")

    member.leave()
    assert [group, "Empty"] in [line.split() for line in tools.run(COMMAND, "--list", "--state", "empty").splitlines()]
    rows = table(tools.run(COMMAND, "--describe", "--group", group))
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [("0", "5", "0"), ("1", "5", "0")]
    assert "was successful" in tools.run(COMMAND, "--delete", "--group", group)
    assert group not in tools.run("GroupsCommand", "--list").split()


def test_configs_of_a_group_are_set_described_and_taken_away(tools: Tools, topics: Topics) -> None:
    group = f"group-{topics.name()}"
    entity = ["--entity-type", "groups", "--entity-name", group]
    config = "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000"
    said = tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", config)
    assert f"Completed updating config for group {group}." in said
    wait_until(
        lambda: "consumer.session.timeout.ms=50000" in tools.run("kafka.admin.ConfigCommand", "--describe", *entity),
        "the config is there",
    )
    described = tools.run("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "consumer.heartbeat.interval.ms=6000" in described
    assert f"Dynamic configs for group {group} are:" in tools.run(
        "kafka.admin.ConfigCommand", "--describe", "--entity-type", "groups"
    )
    below = tools.fail(
        "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "consumer.session.timeout.ms=1000"
    )
    assert "group.consumer.min.session.timeout.ms" in below
    unknown = tools.fail("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "no.such.key=1")
    assert "no.such.key" in unknown
    everything = tools.run("kafka.admin.ConfigCommand", "--describe", *entity, "--all")
    assert len([line for line in everything.splitlines() if "sensitive=" in line]) == 21
    tools.run(
        "kafka.admin.ConfigCommand",
        "--alter",
        *entity,
        "--delete-config",
        "consumer.session.timeout.ms,consumer.heartbeat.interval.ms",
    )
    wait_until(
        lambda: "consumer.session" not in tools.run("kafka.admin.ConfigCommand", "--describe", *entity),
        "the config is gone",
    )
