"""Our images of the metadata, compared with Apache Kafka's: the same batches of records, images and snapshots."""

from __future__ import annotations

import random
from typing import Any

import pytest

from compat_tests.kafka_classes.image_json import image_json, kinds, snapshot_json
from compat_tests.kafka_classes.metadata_history import Batch, History
from compat_tests.remote import Program
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.records import decode_record, encode_record
from pykbroker.metadata.replay import MetadataReplay
from pykbroker.metadata.snapshot import snapshot_values
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

BATCHES = 30
_VERSION = FeatureLevelRecord(name="metadata.version", feature_level=30)


def replayed(batches: list[Batch]) -> list[list[MetadataImage]]:
    """Return the images that each batch makes visible."""
    replay = MetadataReplay()
    image = EMPTY_IMAGE
    found = []
    for batch in batches:
        records = [decode_record(value) for value in batch.values]
        images = [each.image for each in replay.batch(image, records, batch.base, batch.epoch, batch.timestamp_ms)]
        image = images[-1] if images else image
        found.append(images)
    return found


def histories(kafka: Program, count: int, seed: int) -> None:
    rng = random.Random(seed)
    before: list[bytes] = []
    last: list[bytes] = []
    for number in range(count):
        history = History(rng)
        batches = [history.batch() for _ in range(BATCHES)]
        answers = kafka.ask("images", batches=[batch.question() for batch in batches])
        image = EMPTY_IMAGE
        for batch, ours, theirs in zip(batches, replayed(batches), answers, strict=True):
            where = f"seed {seed}, history {number}, batch at {batch.base}:\n" + "\n".join(map(str, batch.records))
            own, images = [image_json(each) for each in ours], theirs["images"]
            if len(own) != len(images):
                # At the beginning of a transaction, Apache Kafka also makes an image of records that change nothing.
                own, images = changing(own, image_json(image)), changing(images, image_json(image))
            assert_same(own, images, where)
            image = ours[-1] if ours else image
            last, written = list(snapshot_values(image)), [bytes.fromhex(each) for each in theirs["snapshot"]]
            one, other = set(snapshot_json(last)), set(snapshot_json(written))
            assert not one ^ other, f"{where}\nonly ours: {one - other}\nonly Apache Kafka's: {other - one}"
            assert kinds(last) == kinds(written), where
        assert_same_after_a_snapshot(kafka, before, last)
        before = last


def changing(images: list[dict[str, Any]], before: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the images that differ from the previous one in more than their position in the log."""
    stands = ("offset", "epoch", "timestamp_ms")
    found = []
    for image in images:
        if any(image[key] != before[key] for key in image if key not in stands):
            found.append(image)
        before = image
    return found


def assert_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], where: str) -> None:
    """Name only the differing values, because an image has a thousand values."""
    if ours != theirs:
        assert len(ours) == len(theirs), f"{where}\n{len(ours)} images of ours, {len(theirs)} of Apache Kafka"
        for one, other in zip(ours, theirs, strict=True):
            assert not [(key, one[key], other[key]) for key in one if one[key] != other[key]], where


def assert_same_after_a_snapshot(kafka: Program, before: list[bytes], after: list[bytes]) -> None:
    """A snapshot of one history replaces the image of another."""
    first = MetadataDelta(EMPTY_IMAGE)
    for value in before:
        first.replay(decode_record(value))
    second = MetadataDelta(first.apply(7, 3, 5), whole=True)
    for value in after:
        second.replay(decode_record(value))
    second.replace_everything()
    theirs = kafka.ask("snapshot", before=[each.hex() for each in before], records=[each.hex() for each in after])
    ours = image_json(second.apply(7, 3, 5))
    # As with the test of users below, Apache Kafka may lose users if all known ones are removed and others are added.
    users, their_users = ours.pop("scram"), theirs.pop("scram")
    assert their_users.items() <= users.items()
    if ours["producer_ids_next"] == -1:
        # Apache Kafka keeps the old producer ids if a snapshot has none.
        del theirs["producer_ids_next"], ours["producer_ids_next"]
    assert_same([ours], [theirs], "after a snapshot")


def test_40_histories_lead_to_the_same_images_and_snapshots(kafka: Program) -> None:
    histories(kafka, 40, seed=6)


@pytest.mark.long(amount="2,000 histories")
def test_2_000_histories_lead_to_the_same_images_and_snapshots(kafka: Program) -> None:
    histories(kafka, 2_000, seed=7)


# Intended differences from Apache Kafka. The histories above leave them out.


def both(kafka: Program, *records: TopLevel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the last image of one batch: Apache Kafka's, then ours."""
    batch = Batch(0, 1, 5, list(records), [encode_record(each, 30) for each in records])
    theirs = kafka.ask("images", batches=[batch.question()])[0]["images"][-1]
    return theirs, image_json(replayed([batch])[0][-1])


def test_an_aborted_transaction_does_not_come_back_with_the_records_after_it(kafka: Program) -> None:
    """Apache Kafka applies it if its batch has more records."""
    theirs, ours = both(
        kafka,
        _VERSION,
        BeginTransactionRecord(name="t"),
        TopicRecord(name="aborted", topic_id=b"aborted         "),
        AbortTransactionRecord(reason="r"),
        TopicRecord(name="whole", topic_id=b"whole           "),
    )
    assert set(theirs["topic_names"]) == {"aborted", "whole"}
    assert set(ours["topic_names"]) == {"whole"}


def test_a_topic_takes_its_configuration_along(kafka: Program) -> None:
    """Apache Kafka keeps the configuration from before its last image, as at a start that reads all batches at once."""
    topic_id = b"of a short life "
    theirs, ours = both(
        kafka,
        _VERSION,
        TopicRecord(name="t", topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=topic_id),
    )
    assert theirs["configs"] == {"2 t": {"retention.ms": "1"}}
    assert ours["configs"] == {}


def test_a_new_user_is_kept_when_the_last_one_goes(kafka: Program) -> None:
    """Apache Kafka loses the new user if both changes come between two images."""
    theirs, ours = both(
        kafka,
        _VERSION,
        RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
        ),
    )
    assert theirs["scram"] == {}
    assert list(ours["scram"]) == ["1 alice"]
