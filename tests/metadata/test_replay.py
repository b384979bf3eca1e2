"""Replaying records: what they do to an image, and that every way to the same records gives the same image."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.controller.state import ControllerState
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.records import decode_record, encode_record, encode_records
from pykbroker.metadata.replay_error import MetadataReplayError
from pykbroker.metadata.snapshot import image_records, snapshot_values
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored import metadata as r
from pykbroker_wire.stored.metadata.client_quota_record import EntityData
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint, BrokerFeature
from pykbroker_wire.stored.metadata.register_controller_record import ControllerEndpoint
from tests.controller.world import node_config

VERSION = 30
NAMES = ["a", "b.c", "b_c", "d"]


def uuid(number: int) -> bytes:
    return b"\x40" + number.to_bytes(15, "big")


def replayed(records: list[TopLevel], image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.offset + len(records), 1)


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Equal but for where they stand in the log."""
    fields = [name for name in MetadataImage.__dataclass_fields__ if name not in ("offset", "epoch", "timestamp_ms")]
    return all(getattr(one, name) == getattr(other, name) for name in fields)


@st.composite
def histories(draw: st.DrawFn) -> list[TopLevel]:
    """Records that can follow each other."""
    records: list[TopLevel] = [r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION)]
    topics: dict[str, tuple[bytes, int]] = {}
    brokers: dict[int, int] = {}
    acls: set[bytes] = set()
    for count, kind in enumerate(draw(st.lists(st.integers(0, 13), max_size=25)), 1):
        pick = draw(st.integers(0, 3))
        # Never the same id for two names.
        number = count * 10 + pick
        name = NAMES[pick]
        match kind:
            case 0 | 1 if name not in topics:
                topics[name] = (uuid(number), draw(st.integers(1, 3)))
                records.append(r.TopicRecord(name=name, topic_id=uuid(number)))
                for index in range(topics[name][1]):
                    records.append(
                        r.PartitionRecord(
                            partition_id=index,
                            topic_id=uuid(number),
                            replicas=[1, 2],
                            isr=[1],
                            leader=1,
                            leader_epoch=0,
                            partition_epoch=0,
                            directories=[uuid(1), uuid(2)],
                        )
                    )
            case 2 | 3 | 4 if name in topics:
                topic_id, partitions = topics[name]
                records.append(
                    r.PartitionChangeRecord(
                        partition_id=draw(st.integers(0, partitions - 1)),
                        topic_id=topic_id,
                        isr=draw(st.none() | st.just([1, 2])),
                        leader=draw(st.sampled_from([-2, -1, 1, 2])),
                        replicas=draw(st.none() | st.just([2, 3])),
                        adding_replicas=draw(st.none() | st.just([3])),
                        directories=[uuid(2), uuid(3)],
                        leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
                        eligible_leader_replicas=draw(st.none() | st.just([2])),
                    )
                )
            case 5 if name in topics:
                records.append(r.RemoveTopicRecord(topic_id=topics.pop(name)[0]))
            case 6:
                value = draw(st.none() | st.text(max_size=3))
                kind_of_resource = draw(st.sampled_from([ConfigResource.TOPIC, ConfigResource.BROKER]))
                records.append(
                    r.ConfigRecord(resource_type=kind_of_resource, resource_name=name, name=f"k{pick}", value=value)
                )
            case 7:
                brokers[pick] = number
                records.append(
                    r.RegisterBrokerRecord(
                        broker_id=pick,
                        broker_epoch=number,
                        incarnation_id=uuid(number),
                        end_points=[BrokerEndpoint(name="L", host="h", port=pick, security_protocol=0)],
                        features=[BrokerFeature(name="f", min_supported_version=0, max_supported_version=1)],
                        rack=draw(st.none() | st.just("r")),
                        log_dirs=[uuid(9), uuid(8)],
                    )
                )
            case 8 if pick in brokers:
                records.append(
                    r.BrokerRegistrationChangeRecord(
                        broker_id=pick,
                        broker_epoch=brokers[pick],
                        fenced=draw(st.sampled_from([-1, 0, 1])),
                        in_controlled_shutdown=draw(st.sampled_from([0, 1])),
                        log_dirs=draw(st.just([]) | st.just([uuid(7)])),
                        cordoned_log_dirs=draw(st.none() | st.just([uuid(7)])),
                    )
                )
            case 9 if pick in brokers:
                records.append(r.UnregisterBrokerRecord(broker_id=pick, broker_epoch=brokers.pop(pick)))
            case 10:
                records.append(
                    r.ClientQuotaRecord(
                        entity=[EntityData(entity_type="user", entity_name=draw(st.none() | st.just("u")))],
                        key="producer_byte_rate",
                        value=1.5,
                        remove=draw(st.booleans()),
                    )
                )
                records.append(r.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=number * 1000))
            case 11 if uuid(pick) in acls:
                acls.remove(uuid(pick))
                records.append(r.RemoveAccessControlEntryRecord(id=uuid(pick)))
            case 11:
                acls.add(uuid(pick))
                records.append(
                    r.AccessControlEntryRecord(
                        id=uuid(pick), resource_type=2, resource_name="t", pattern_type=3, principal="User:x", host="*"
                    )
                )
            case 12:
                records.append(
                    r.UserScramCredentialRecord(
                        name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
                    )
                    if draw(st.booleans())
                    else r.RemoveUserScramCredentialRecord(name=name, mechanism=1)
                )
                records.append(r.DelegationTokenRecord(owner="User:o", renewers=["User:r"], token_id=name))
            case 13:
                records.append(
                    r.RegisterControllerRecord(
                        controller_id=pick,
                        incarnation_id=uuid(number),
                        end_points=[ControllerEndpoint(name="C", host="h", port=1, security_protocol=0)],
                    )
                )
                records.append(r.NoOpRecord())
            case _:
                pass
    return records


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_batches_make_no_difference(records: list[TopLevel], random: Any) -> None:
    image = EMPTY_IMAGE
    position = 0
    while position < len(records):
        size = random.randint(1, 5)
        image = replayed(records[position : position + size], image)
        position += size
    assert same(image, replayed(records))


@given(histories())
@settings(max_examples=25, deadline=None)
def test_a_snapshot_is_the_image(records: list[TopLevel]) -> None:
    image = replayed(records)
    assert same(replayed(list(image_records(image))), image)
    decoded: list[TopLevel] = [decode_record(value) for value in snapshot_values(image)]
    assert same(replayed(decoded), image)


@given(histories(), histories())
@settings(max_examples=20, deadline=None)
def test_a_snapshot_replaces_whatever_was_there(before: list[TopLevel], after: list[TopLevel]) -> None:
    wanted = replayed(after)
    loader = MetadataLoader()
    loader.handle_commit(0, 1, 0, encode_records(before, VERSION))
    seen: list[MetadataDelta] = []

    class Publisher:
        def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
            seen.append(delta)

    loader.add_publisher(Publisher(), catch_up=False)
    loader.handle_snapshot(500, 2, snapshot_values(wanted))
    assert same(loader.image, wanted)
    assert loader.image.offset == 500
    assert same(seen[0].apply(500, 2), wanted)


@given(histories())
@settings(max_examples=20, deadline=None)
def test_a_late_publisher_is_told_everything(records: list[TopLevel]) -> None:
    image = replayed(records)
    delta = MetadataDelta.of_everything(image)
    assert same(delta.apply(image.offset, 1), image)


def topic_with(partitions: int, number: int) -> list[TopLevel]:
    records: list[TopLevel] = [r.TopicRecord(name=f"t{number}", topic_id=uuid(number))]
    for index in range(partitions):
        records.append(
            r.PartitionRecord(
                partition_id=index, topic_id=uuid(number), replicas=[1], isr=[1], leader=1, leader_epoch=0
            )
        )
    return records


def test_one_change_shares_everything_else() -> None:
    image = replayed(topic_with(3, 1) + topic_with(3, 2))
    changed = replayed([r.PartitionChangeRecord(partition_id=1, topic_id=uuid(1), leader=-1)], image)
    assert changed.topics.by_name["t2"] is image.topics.by_name["t2"]
    assert changed.topics.by_name["t1"].partitions[0] is image.topics.by_name["t1"].partitions[0]
    assert changed.brokers is image.brokers
    assert changed.configs is image.configs
    assert image.topics.by_name["t1"].partitions[1].leader == 1
    partition = changed.topics.by_name["t1"].partitions[1]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (-1, 1, 0)


def test_removing_a_topic_removes_its_configuration() -> None:
    config = r.ConfigRecord(resource_type=ConfigResource.TOPIC, resource_name="t1", name="retention.ms", value="1")
    image = replayed([*topic_with(1, 1), config])
    assert image.configs.of(ConfigResource.TOPIC, "t1") == {"retention.ms": "1"}
    image = replayed([r.RemoveTopicRecord(topic_id=uuid(1))], image)
    assert not image.configs.by_resource
    again = replayed([*topic_with(1, 1), config, r.RemoveTopicRecord(topic_id=uuid(1))])
    assert not again.configs.by_resource
    assert not again.topics.by_name


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionRecord(topic_id=uuid(5), partition_id=0),
        r.PartitionChangeRecord(topic_id=uuid(1), partition_id=7),
        r.RemoveTopicRecord(topic_id=uuid(5)),
        r.TopicRecord(name="t1", topic_id=uuid(6)),
        r.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3),
        r.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),
        r.RemoveAccessControlEntryRecord(id=uuid(1)),
    ],
)
def test_a_contradiction_is_an_error(record: TopLevel) -> None:
    image = replayed(topic_with(1, 1))
    with pytest.raises(MetadataReplayError):
        replayed([record], image)


def test_clear_elr() -> None:
    change = r.PartitionChangeRecord(topic_id=uuid(1), partition_id=0, eligible_leader_replicas=[2], last_known_elr=[3])
    image = replayed([*topic_with(2, 1), change])
    before = image.topics.by_name["t1"].partitions
    assert before[0].elr == (2,)
    for name in ("t1", ""):
        cleared = replayed([r.ClearElrRecord(topic_name=name)], image).topics.by_name["t1"].partitions
        assert (cleared[0].elr, cleared[0].last_known_elr) == ((), ())
        # As Apache Kafka replays it: a change of the partition. Where there is no ELR nothing changes.
        assert cleared[0].partition_epoch == before[0].partition_epoch + 1
        assert cleared[1] == before[1]


def test_an_elr_that_was_cleared_is_gone_from_snapshots_and_later_images() -> None:
    change = r.PartitionChangeRecord(topic_id=uuid(1), partition_id=0, eligible_leader_replicas=[2], last_known_elr=[3])
    # In one delta with the change, and with the creation, of the partition; in another topic it stays.
    other = r.PartitionChangeRecord(topic_id=uuid(2), partition_id=0, eligible_leader_replicas=[1])
    level = r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION)
    image = replayed([level, *topic_with(2, 1), *topic_with(1, 2), change, other, r.ClearElrRecord(topic_name="t1")])
    assert image.topics.by_name["t1"].partitions[0].elr == ()
    assert image.topics.by_name["t2"].partitions[0].elr == (1,)
    again = replayed(list(image_records(image)))
    assert again.topics == image.topics
    everything = replayed([r.ClearElrRecord(topic_name="")], again)
    assert everything.topics.by_name["t2"].partitions[0].elr == ()
    with pytest.raises(MetadataReplayError):
        replayed([r.ClearElrRecord(topic_name="gone")], again)


# Transactions.


def commit(loader: MetadataLoader, *records: TopLevel) -> None:
    values = [encode_record(record, VERSION) for record in records]
    loader.handle_commit(loader.last_offset + 1, 1, 0, values)


def test_the_loader_knows_where_a_feature_changed_last() -> None:
    loader = MetadataLoader()
    assert loader.features_offset == -1
    commit(loader, r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION))
    commit(loader, *topic_with(1, 1))
    assert (loader.features_offset, loader.image.offset) == (0, 2)
    commit(loader, r.NoOpRecord(), r.FeatureLevelRecord(name="group.version", feature_level=1), r.NoOpRecord())
    assert loader.features_offset == 5
    loader.handle_snapshot(9, 1, iter([encode_record(record, VERSION) for record in topic_with(1, 2)]))
    assert loader.features_offset == 9


def test_a_transaction_shows_as_a_whole() -> None:
    loader = MetadataLoader()
    commit(loader, r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION))
    commit(loader, *topic_with(1, 1), r.BeginTransactionRecord(name="x"), *topic_with(1, 2))
    assert set(loader.image.topics.by_name) == {"t1"}
    commit(loader, *topic_with(1, 3))
    assert set(loader.image.topics.by_name) == {"t1"}
    commit(loader, *topic_with(1, 4), r.EndTransactionRecord(), *topic_with(1, 5))
    assert set(loader.image.topics.by_name) == {"t1", "t2", "t3", "t4", "t5"}


def test_an_aborted_transaction_never_shows() -> None:
    loader = MetadataLoader()
    commit(loader, *topic_with(1, 1))
    commit(loader, r.BeginTransactionRecord(name="x"), *topic_with(1, 2))
    commit(loader, r.AbortTransactionRecord(reason="y"), *topic_with(1, 3))
    assert set(loader.image.topics.by_name) == {"t1", "t3"}
    commit(loader, *topic_with(1, 2))
    assert "t2" in loader.image.topics.by_name


@pytest.mark.asyncio
async def test_waiting_for_an_offset() -> None:
    loader = MetadataLoader()
    waiting = loader.when(lambda image: image.offset >= 1)
    later = loader.when(lambda image: image.offset >= 5)
    commit(loader, *topic_with(1, 1))
    await asyncio.wait_for(waiting, 1)
    assert not later.done()
    later.cancel()
    commit(loader, *topic_with(4, 2))


def test_one_publishers_bug_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    class Broken:
        def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
            raise RuntimeError("bug")

    class Fine:
        def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
            seen.append(new.offset)

    loader = MetadataLoader([Broken(), Fine()])
    commit(loader, *topic_with(1, 1))
    assert seen == [1]
    assert "Publishing the metadata image at offset 1" in caplog.text


@pytest.mark.parametrize(
    ("record", "version"),
    [
        (r.BrokerRegistrationChangeRecord(fenced=1), 0),
        (r.BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 1),
        (r.BrokerRegistrationChangeRecord(log_dirs=[uuid(1)]), 2),
        (r.BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 3),
        (r.RegisterBrokerRecord(), 4),
        (r.PartitionRecord(), 2),
        (r.TopicRecord(), 0),
    ],
)
def test_records_are_written_in_kafkas_versions(record: TopLevel, version: int) -> None:
    assert encode_record(record, VERSION)[2] == version


class Both:
    """A loader and a controller's state that read the same log."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.state = ControllerState(1, "c", node_config(), random.Random(1))

    def commit(self, *records: TopLevel) -> None:
        base_offset = self.loader.last_offset + 1
        commit(self.loader, *records)
        self.state.replay(records, base_offset, 1)

    def names(self) -> tuple[set[str], set[str]]:
        return set(self.loader.image.topics.by_name), set(self.state.image.topics.by_name)


@pytest.mark.parametrize("spread", [False, True], ids=["in one batch", "over batches"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "aborted"])
def test_loader_and_controller_agree_on_transactions(ended: bool, spread: bool) -> None:
    both = Both()
    both.commit(r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION), *topic_with(1, 1))
    end = r.EndTransactionRecord() if ended else r.AbortTransactionRecord(reason="x")
    registered = r.RegisterBrokerRecord(broker_id=7, incarnation_id=b"i" * 16, broker_epoch=9)
    records = [r.BeginTransactionRecord(name="x"), *topic_with(1, 2), registered, *topic_with(1, 3), end]
    if spread:
        # Only the controller, which may have to undo it, sees what is not whole.
        both.commit(*topic_with(1, 5), *records[:2])
        assert both.names() == ({"t1", "t5"}, {"t1", "t2", "t5"})
        assert both.state.transaction_offset == 5
        for record in records[2:-1]:
            both.commit(record)
        assert both.names() == ({"t1", "t5"}, {"t1", "t2", "t3", "t5"})
        assert 7 in both.state.registration_offsets
        both.commit(records[-1], *topic_with(1, 4))
    else:
        both.commit(*topic_with(1, 5), *records, *topic_with(1, 4))
    whole = {"t1", "t4", "t5"} | ({"t2", "t3"} if ended else set())
    assert both.names() == (whole, whole)
    assert both.loader.image.topics == both.state.image.topics
    assert both.loader.image.brokers == both.state.image.brokers
    assert both.loader.image.offset == both.state.image.offset
    assert both.state.transaction_offset == -1
    assert (7 in both.state.registration_offsets) is ended


def test_kraft_version_is_not_taken_from_a_metadata_record() -> None:
    """Older releases of Apache Kafka wrote such records. The level that counts is in the quorum's control records."""
    image = replayed(
        [
            r.FeatureLevelRecord(name="metadata.version", feature_level=VERSION),
            r.FeatureLevelRecord(name="kraft.version", feature_level=1),
        ]
    )
    assert image.features.all() == {"metadata.version": VERSION}
    assert [record.name for record in image_records(image)] == ["metadata.version"]  # type: ignore[attr-defined]
