"""The number of partitions with which groups and transactional ids find their coordinator."""

from __future__ import annotations

import logging

import pytest

from pykbroker.coordinator.kept_count import KeptCount
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker_wire.stored.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord

NAME = "__consumer_offsets"
FIRST, SECOND = b"first topic's id", b"other topic's id"


def grown(image: MetadataImage, count: int, topic_id: bytes = FIRST) -> MetadataImage:
    """Return the image with this many partitions of the topic."""
    delta = MetadataDelta(image)
    known = image.topics.by_name.get(NAME)
    if known is not None and known.id != topic_id:
        delta.replay(RemoveTopicRecord(topic_id=known.id))
        known = None
    if known is None:
        delta.replay(TopicRecord(name=NAME, topic_id=topic_id))
    for index in range(0 if known is None else len(known.partitions), count):
        delta.replay(PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1))
    return delta.apply(1, 1)


def test_a_topic_that_grows_moves_no_key(caplog: pytest.LogCaptureFixture) -> None:
    count = KeptCount(NAME, 50)
    two = grown(EMPTY_IMAGE, 2)
    count.start(two)
    three = grown(two, 3)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            count.look(three)
            assert count.of(three) == 2
    # One line for the change, and not one for each image.
    assert [record.getMessage().partition(" while")[0] for record in caplog.records] == [
        "Topic __consumer_offsets has grown to 3 partitions"
    ]


def test_a_start_takes_the_number_that_is_there_when_the_metadata_is_whole() -> None:
    """An earlier image, from the middle of the replay, does not count."""
    count = KeptCount(NAME, 50)
    two = grown(EMPTY_IMAGE, 2)
    count.look(two)
    three = grown(two, 3)
    assert (count.of(two), count.of(three)) == (2, 3)
    count.start(three)
    assert count.of(grown(three, 4)) == 3


def test_a_topic_that_is_made_anew_has_its_own_number() -> None:
    count = KeptCount(NAME, 50)
    count.start(EMPTY_IMAGE)
    assert count.of(EMPTY_IMAGE) == 50
    two = grown(EMPTY_IMAGE, 2)
    count.look(two)
    other = grown(two, 5, SECOND)
    count.look(other)
    assert count.of(other) == 5
    assert count.of(grown(other, 6, SECOND)) == 5
