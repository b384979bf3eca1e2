"""Topics for tests, created through librdkafka's admin client, which sends the same requests to every broker."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, OffsetSpec

from testkit.clients import wait_until


class Topics:
    """Creates topics with names that no other test has."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 30_000, "log_level": 0})
        self._prefix = f"t{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)

    def name(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def create(self, *, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None) -> str:
        """Create a topic with the cluster's default number of replicas; returns its name once every partition has a
        leader."""
        topic = name or self.name()
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
        self.admin.create_topics([new], operation_timeout=30)[topic].result(60)
        wait_until(lambda: self.led(topic, partitions), f"{topic} has {partitions} partitions with a leader")
        return topic

    def led(self, topic: str, partitions: int) -> bool:
        """Return True if the leader of every partition serves it, which happens a little later than its name in the
        metadata."""
        found = self.admin.list_topics(topic, timeout=30).topics[topic]
        if found.error is not None or sum(part.leader >= 0 for part in found.partitions.values()) != partitions:
            return False
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}  # type: ignore[no-untyped-call]
        try:
            answers = self.admin.list_offsets(wanted, request_timeout=30)
            return all(answer.result(30).offset >= 0 for answer in answers.values())
        except KafkaException:
            return False

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic], operation_timeout=30)[topic].result(60)

    def describe(self, topic: str) -> tuple[str, int, dict[str, str]]:
        """Return the topic's id, its number of partitions, and the configs that were set on it."""
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(30)
        own = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        return str(found.topic_id), len(found.partitions), own
