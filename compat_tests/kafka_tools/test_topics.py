"""kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records, kafka-log-dirs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from compat_tests.kafka_tools.conftest import Tools
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until


def described(tools: Tools, topic: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the fields of the topic's line and of each partition's line."""
    lines = tools.run("TopicCommand", "--describe", "--topic", topic).splitlines()
    rows = [dict(re.findall(r"(\w+): ([^\t]*)", line)) for line in lines if line.strip()]
    return rows[0], rows[1:]


def write(broker: Node, topic: str, count: int, partitions: int = 1) -> None:
    records = [Record(None, b"%d" % i, (), NOW_MS + i, i % partitions) for i in range(count)]
    ConfluentClient().produce(broker.bootstrap, topic, records)


def test_a_topic_from_creation_to_deletion(tools: Tools, topics: Topics) -> None:
    topic = topics.name()
    created = tools.run(
        "TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1",
        "--config", "retention.ms=600000", "--config", "cleanup.policy=compact",
    )  # fmt: skip
    assert created.strip() == f"Created topic {topic}."
    head, partitions = described(tools, topic)
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("3", "1")
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", head["TopicId"])
    assert {"retention.ms=600000", "cleanup.policy=compact"} <= set(head["Configs"].split(","))
    assert [(p["Partition"], p["Replicas"], p["Isr"]) for p in partitions] == [
        (str(number), p["Leader"], p["Leader"]) for number, p in enumerate(partitions)
    ]
    assert f"Topic '{topic}' already exists" in tools.fail("TopicCommand", "--create", "--topic", topic)

    tools.run("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    wait_until(lambda: len(described(tools, topic)[1]) == 5, "the topic has five partitions")
    refused = tools.fail("TopicCommand", "--alter", "--topic", topic, "--partitions", "2")
    assert "currently has 5 partition" in refused

    assert topic in tools.run("TopicCommand", "--list").split()
    tools.run("TopicCommand", "--delete", "--topic", topic)
    wait_until(lambda: topic not in tools.run("TopicCommand", "--list").split(), "the topic is gone")


def test_no_partition_is_under_replicated_or_unavailable(tools: Tools, topic: str) -> None:
    for what in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert tools.run("TopicCommand", "--describe", "--topic", topic, what).strip() == ""


def test_wrong_names_and_values_are_refused_with_kafkas_errors(tools: Tools, topics: Topics) -> None:
    assert "InvalidTopicException" in tools.fail("TopicCommand", "--create", "--topic", "no spaces")
    wrong = tools.fail("TopicCommand", "--create", "--topic", topics.name(), "--config", "retention.ms=soon")
    assert "InvalidConfigurationException" in wrong or "ConfigException" in wrong
    too_many = tools.fail("TopicCommand", "--create", "--topic", topics.name(), "--replication-factor", "9")
    assert "InvalidReplicationFactorException" in too_many


def test_topic_configs_are_altered_described_and_deleted(tools: Tools, topic: str) -> None:
    entity = ["--entity-type", "topics", "--entity-name", topic]
    tools.run(
        "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=7000,segment.bytes=2000000"
    )
    said = tools.run("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms=7000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7000}" in said
    assert "segment.bytes=2000000 " in said
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    said = tools.run("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms" not in said
    everything = tools.run("kafka.admin.ConfigCommand", "--describe", "--all", *entity)
    assert "retention.ms=604800000 " in everything
    assert "max.message.bytes=1048588 " in everything
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in everything


def test_broker_configs_are_described_and_altered(tools: Tools, broker: Node, topics: Topics) -> None:
    node = re.search(r"\(id: (\d+) ", tools.run("BrokerApiVersionsCommand"))
    assert node is not None
    one = ["--entity-type", "brokers", "--entity-name", node[1]]
    everything = tools.run("kafka.admin.ConfigCommand", "--describe", "--all", *one)
    assert re.search(rf"^  node\.id={node[1]} sensitive=false", everything, re.M)
    assert re.search(r"^  log\.retention\.hours=168 ", everything, re.M)
    assert re.search(r"^  offsets\.topic\.replication\.factor=1 ", everything, re.M)
    tools.run("kafka.admin.ConfigCommand", "--alter", *one, "--add-config", "log.cleaner.backoff.ms=15001")
    said = tools.run("kafka.admin.ConfigCommand", "--describe", *one)
    assert "log.cleaner.backoff.ms=15001 sensitive=false" in said
    assert "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=15001" in said
    tools.run("kafka.admin.ConfigCommand", "--alter", *one, "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in tools.run("kafka.admin.ConfigCommand", "--describe", *one)


def test_offsets_by_position_and_by_time(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 11, partitions=2)

    def offsets(time: str) -> list[str]:
        return tools.run("GetOffsetShell", "--topic", topic, "--time", time).split()

    assert offsets("latest") == [f"{topic}:0:6", f"{topic}:1:5"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("max-timestamp") == [f"{topic}:0:5", f"{topic}:1:4"]
    assert offsets(str(NOW_MS + 4)) == [f"{topic}:0:2", f"{topic}:1:2"]


def test_records_are_deleted_up_to_an_offset(tools: Tools, topics: Topics, broker: Node, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 20, partitions=2)
    wanted = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 4}, {"topic": topic, "partition": 1, "offset": -1}]
    wanted.write_text(json.dumps({"version": 1, "partitions": partitions}))
    said = tools.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 4\b", said)
    assert re.search(rf"partition: {topic}-1\s+low_watermark: 10\b", said)
    read = ConfluentClient().consume(broker.bootstrap, topic)
    assert sorted((r.partition, r.offset) for r in read) == [(0, offset) for offset in range(4, 10)]
    assert tools.run("GetOffsetShell", "--topic", topic, "--time", "earliest").split() == [
        f"{topic}:0:4",
        f"{topic}:1:10",
    ]


def test_log_dirs_have_every_partition_with_its_size(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 1)
    said = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    answer = json.loads(said[said.index("{") :])
    (node,) = answer["brokers"]
    (log_dir,) = node["logDirs"]
    assert log_dir["error"] is None
    assert Path(log_dir["logDir"]).is_relative_to(broker.data_dir)
    found = {p["partition"]: p for p in log_dir["partitions"]}
    assert sorted(found) == [f"{topic}-0", f"{topic}-1"]
    on_disk = Path(log_dir["logDir"]) / f"{topic}-0" / "00000000000000000000.log"
    assert found[f"{topic}-0"]["size"] == on_disk.stat().st_size > 0
    assert found[f"{topic}-1"] == {"partition": f"{topic}-1", "size": 0, "offsetLag": 0, "isFuture": False}
