"""The rules for the topic of a dead letter queue."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pykbroker.config.group import resolve_group
from pykbroker.config.load import development_profile, load
from pykbroker.dead_letters.letter_topics import (
    LetterPartition,
    LetterQueue,
    LetterTopic,
    MissingTopic,
    RefusedTopic,
    letter_queue,
    letter_topic,
)
from pykbroker.metadata.image import (
    ConfigResource,
    ConfigsImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    TopicsImage,
)
from pykbroker_wire.primitives import ZERO_UUID

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
CREATES = {"errors.deadletterqueue.auto.create.topics.enable": "true"}


def judged(
    name: str,
    *,
    topic: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
    source_partition: int = 0,
    leaders: tuple[int, ...] = (4, 5, -1),
) -> LetterTopic:
    """Judge a topic of this name. `topic`: its configuration, None if it does not exist."""
    topics, configs = TopicsImage(), ConfigsImage()
    if topic is not None:
        partitions = {
            index: PartitionImage((1,), (ZERO_UUID,), (1,), (), (), (), (), leader, 0, 10 + index, 0)
            for index, leader in enumerate(leaders)
        }
        image = TopicImage(name, b"i" * 16, partitions)
        topics = TopicsImage({name: image}, {image.id: image})
        configs = ConfigsImage({(ConfigResource.TOPIC, name): topic})
    config = load(development_profile("/data") | dict(broker or {}))
    return letter_topic(LetterQueue(name), source_partition, config, MetadataImage(topics=topics, configs=configs))


def test_the_partition_is_that_of_the_source_modulo_their_number() -> None:
    found = [judged("dlq.a", topic=ENABLED, source_partition=index) for index in (0, 1, 2, 3)]
    most = 1048588
    assert found == [
        LetterPartition("dlq.a", b"i" * 16, 0, 4, 10, most),
        LetterPartition("dlq.a", b"i" * 16, 1, 5, 11, most),
        LetterPartition("dlq.a", b"i" * 16, 2, -1, 12, most),
        LetterPartition("dlq.a", b"i" * 16, 0, 4, 10, most),
    ]


def test_a_topic_without_partitions_has_no_leader() -> None:
    assert judged("dlq.a", topic=ENABLED, leaders=()) == LetterPartition("dlq.a", b"i" * 16, 0, -1, -1, 1048588)


@pytest.mark.parametrize(
    ("name", "topic", "broker", "reason"),
    [
        ("", None, {}, "no longer a dead letter topic"),
        ("__dlq", ENABLED, {}, "begins with __"),
        ("dlq.a", {}, {}, "does not have errors.deadletterqueue.group.enable=true"),
        ("dlq.a", {"errors.deadletterqueue.group.enable": "false"}, {}, "does not have"),
        ("dlq.a", None, {}, "does not exist"),
        ("letters", ENABLED, {}, "does not begin with dlq."),
        ("letters", None, CREATES, "does not begin with dlq."),
    ],
)
def test_a_topic_is_refused(name: str, topic: Mapping[str, str] | None, broker: Mapping[str, str], reason: str) -> None:
    found = judged(name, topic=topic, broker=broker)
    assert isinstance(found, RefusedTopic)
    assert reason in found.reason


def test_a_missing_topic_may_be_created_if_the_broker_allows_it() -> None:
    assert judged("dlq.a", broker=CREATES) == MissingTopic("dlq.a")


def test_an_empty_prefix_allows_every_name() -> None:
    found = judged("letters", topic=ENABLED, broker={"errors.deadletterqueue.topic.name.prefix": ""})
    assert isinstance(found, LetterPartition)


def test_the_largest_batch_is_that_of_the_topic_or_else_of_the_broker() -> None:
    own = judged("dlq.a", topic=ENABLED | {"max.message.bytes": "2000"}, broker={"message.max.bytes": "3000"})
    assert isinstance(own, LetterPartition)
    assert own.most_bytes == 2000
    other = judged("dlq.a", topic=ENABLED, broker={"message.max.bytes": "3000"})
    assert isinstance(other, LetterPartition)
    assert other.most_bytes == 3000


def test_a_group_has_no_queue_unless_it_has_a_topic() -> None:
    config = load(development_profile("/data"))
    assert letter_queue(resolve_group(config)) == LetterQueue("", copies=False)
    own = {"errors.deadletterqueue.topic.name": "dlq.a", "errors.deadletterqueue.copy.record.enable": "true"}
    assert letter_queue(resolve_group(config, own)) == LetterQueue("dlq.a", copies=True)
