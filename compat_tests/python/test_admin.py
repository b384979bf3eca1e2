"""The admin clients of the three Python libraries, each of which sends other versions."""

from __future__ import annotations

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonNewTopic
from kafka.errors import TopicAlreadyExistsError

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until


def test_confluent_kafka(broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=1, config={"retention.ms": "60000"})
    topics.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    wait_until(lambda: topics.led(topic, 3), "there are three partitions")

    def change(name: str, value: str | None, what: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=what)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        topics.admin.incremental_alter_configs([wanted])[wanted].result(30)

    change("segment.bytes", "2097152", AlterConfigOpType.SET)
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    change("retention.ms", None, AlterConfigOpType.DELETE)
    assert topics.describe(topic)[1:] == (3, {"segment.bytes": "2097152", "cleanup.policy": "delete,compact"})

    client = ConfluentClient()
    group = f"group-{topic}"
    client.produce(broker.bootstrap, topic, [Record(b"k", b"1", (), NOW_MS)])
    member = client.member(broker.bootstrap, topic, group)
    wait_until(lambda: len(member.records()) == 1, "the group has read it")
    described = topics.admin.describe_consumer_groups([group])[group].result(30)
    assert (described.state.name, len(described.members), described.partition_assignor) == ("STABLE", 1, "range")
    assigned = {part.partition for part in described.members[0].assignment.topic_partitions}
    assert assigned == {0, 1, 2}
    member.leave()
    assert group in {listed.group_id for listed in topics.admin.list_consumer_groups().result(30).valid}
    topics.admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {listed.group_id for listed in topics.admin.list_consumer_groups().result(30).valid}

    topics.delete(topic)
    wait_until(lambda: topic not in topics.admin.list_topics(timeout=30).topics, "the topic is gone")
    cluster = topics.admin.describe_cluster().result(30)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]


def test_kafka_python(broker: Node, topics: Topics) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    topic = topics.name()
    new = KafkaPythonNewTopic(topic, num_partitions=2, replication_factor=1, topic_configs={"retention.ms": "60000"})
    admin.create_topics([new])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([new])
    wait_until(lambda: topics.led(topic, 2), "the topic is there")
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics(), "the topic is gone")
    admin.close()


async def aiokafka_round(bootstrap: str, topic: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic(topic, 1, 1)])
        await admin.create_partitions({topic: AioNewPartitions(4)})
        (described,) = await admin.describe_topics([topic])
        return len(described["partitions"])
    finally:
        await admin.close()


@pytest.mark.asyncio
async def test_aiokafka(broker: Node, topics: Topics) -> None:
    assert await aiokafka_round(broker.bootstrap, topics.name()) == 4
