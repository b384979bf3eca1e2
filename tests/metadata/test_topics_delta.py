"""The changes of topics between two images."""

from __future__ import annotations

import pytest

from pykbroker.metadata.image import PartitionImage, TopicImage, TopicsImage
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker.metadata.topics_delta import TOPIC_RECORDS, TopicsDelta
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import PartitionChangeRecord, PartitionRecord, TopicRecord

OLD, NEW = b"old-" * 4, b"new-" * 4


def replay(delta: TopicsDelta, *records: TopLevel) -> None:
    for record in records:
        TOPIC_RECORDS[type(record)](delta, record)


def made(name: str, topic_id: bytes) -> tuple[TopLevel, TopLevel]:
    return TopicRecord(name=name, topic_id=topic_id), PartitionRecord(
        topic_id=topic_id, partition_id=0, replicas=[1, 2], isr=[1, 2], leader=1
    )


@pytest.fixture
def image() -> TopicsImage:
    delta = TopicsDelta(TopicsImage({}, {}))
    replay(delta, *made("t", OLD))
    return delta.apply()


def test_a_topic_that_was_deleted_and_made_again_is_in_both(image: TopicsImage) -> None:
    delta = TopicsDelta(image)
    assert not delta
    assert delta.remove(OLD) == "t"
    assert delta.id_of("t") is None
    replay(delta, *made("t", NEW))
    assert delta.id_of("t") == NEW
    assert (list(delta.deleted), list(delta.changed)) == ([OLD], [NEW])
    assert {topic.id for topic in delta.apply().by_id.values()} == {NEW}


def test_a_topic_that_comes_and_goes_between_the_images_leaves_nothing(image: TopicsImage) -> None:
    delta = TopicsDelta(image)
    replay(delta, *made("u", NEW))
    delta.remove(NEW)
    assert not delta
    assert delta.apply() is image


def test_a_change_of_leader_begins_an_epoch_and_the_other_partitions_are_shared(image: TopicsImage) -> None:
    delta = TopicsDelta(image)
    replay(delta, PartitionChangeRecord(topic_id=OLD, partition_id=0, leader=2))
    after = delta.apply().by_name["t"].partitions[0]
    before = image.by_name["t"].partitions[0]
    assert (after.leader, after.leader_epoch) == (2, before.leader_epoch + 1)
    assert after.replicas is before.replicas


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="t", topic_id=NEW),
        PartitionRecord(topic_id=NEW, partition_id=0),
        PartitionChangeRecord(topic_id=OLD, partition_id=7),
    ],
    ids=["a name that is taken", "an unknown topic", "an unknown partition"],
)
def test_a_record_that_cannot_follow_is_an_error(image: TopicsImage, record: TopLevel) -> None:
    delta = TopicsDelta(image)
    with pytest.raises(MetadataReplayError):
        replay(delta, record)
    with pytest.raises(MetadataReplayError):
        delta.remove(NEW)


def test_between_two_images_only_what_differs_is_changed(image: TopicsImage) -> None:
    kept = TopicImage("kept", NEW, {0: PartitionImage((1,), (b"",), (1,), (), (), (), (), 1, 0, 0, 0)})
    old = TopicsImage({**image.by_name, "kept": kept}, {**image.by_id, NEW: kept})
    new = TopicsImage({"kept": kept}, {NEW: kept})
    delta = TopicsDelta(old)
    delta.set_all(new)
    delta.delete_others(kept=new.by_id)
    assert (delta.changed, list(delta.deleted)) == ({}, [OLD])
    assert delta.apply() == new
