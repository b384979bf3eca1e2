"""The eligible leader replicas and changes of min.insync.replicas."""

from __future__ import annotations

import pytest

from pykbroker.controller.brokers import unregister_broker
from pykbroker.controller.configs import Alteration, AlterOperation, incremental_alter, legacy_alter
from pykbroker.controller.features import Update, update_features
from pykbroker.controller.state import Checkpoint
from pykbroker.controller.topics import create_topics
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import ELR_VERSION
from pykbroker.metadata.image import EMPTY_IMAGE, ConfigResource, PartitionImage
from pykbroker.metadata.snapshot import image_records
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.broker_registration import Feature
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.controller.test_brokers import SESSION_MS, beat, make, partition, register
from tests.controller.world import Pure, node_config

TOPIC, BROKER = ConfigResource.TOPIC, ConfigResource.BROKER
KEY = "min.insync.replicas"
CLUSTER = (BROKER, "")
Resource = tuple[int, str]


def config(resource: Resource, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=KEY, value=value)


def elr_on(brokers: int = 3, minimum: str = "2") -> Pure:
    """Return a cluster as its first controller begins it, with one minimum for all brokers."""
    pure = Pure(brokers)
    pure.replay([FeatureLevelRecord(name=ELR_VERSION, feature_level=1), config(CLUSTER, minimum)])
    return pure


def alter(pure: Pure, resource: Resource, value: str | None) -> list[TopLevel]:
    """Change the minimum. Return the records."""
    operation = AlterOperation.DELETE if value is None else AlterOperation.SET
    result = incremental_alter(pure.state, {resource: [Alteration(KEY, operation, value)]}, False)
    assert result.response[resource].code is ErrorCode.NONE
    pure.apply(result)
    return result.records


def lose(pure: Pure, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        beat(pure, broker_id, want_fence=True)


def in_sync_and_eligible(found: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return found.isr, found.elr


@pytest.mark.parametrize("resource", [(TOPIC, "t"), CLUSTER], ids=["topic", "cluster"])
def test_a_replica_that_may_lack_records_is_not_elected_after_the_minimum_fell(resource: Resource) -> None:
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2)
    assert in_sync_and_eligible(partition(pure)) == ((1,), (2,))
    # From here on leader 1 commits alone, and 2 lacks those records.
    assert alter(pure, resource, "1") == [
        config(resource, "1"),
        ClearElrRecord(topic_name="t" if resource[0] == TOPIC else ""),
    ]
    assert in_sync_and_eligible(partition(pure)) == ((1,), ())
    lose(pure, 1)
    beat(pure, 2)
    assert partition(pure).leader == -1
    beat(pure, 1)
    assert partition(pure).leader == 1


def test_while_the_minimum_stays_an_eligible_replica_leads() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2, 1)
    beat(pure, 2)
    assert (partition(pure).leader, partition(pure).isr) == (2, (2,))


def test_which_topics_a_change_concerns() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    make(pure, [1, 2], [2, 1], name="other")
    lose(pure, 2)
    assert {partition(pure, index, name).elr for name, index in (("t", 0), ("other", 0), ("other", 1))} == {(2,)}
    before = partition(pure, 0, "other").partition_epoch
    alter(pure, (TOPIC, "other"), "3")
    assert partition(pure).elr == (2,)
    assert [partition(pure, index, "other").elr for index in (0, 1)] == [(), ()]
    # As Apache Kafka replays it: brokers and the other controllers count the same.
    assert partition(pure, 0, "other").partition_epoch == before + 1
    alter(pure, CLUSTER, "2")
    assert partition(pure).elr == ()
    # A broker's value is written even if it is the same, a topic's is not.
    assert alter(pure, (TOPIC, "other"), "3") == []
    assert alter(pure, (TOPIC, "other"), None) == [config((TOPIC, "other"), None), ClearElrRecord(topic_name="other")]


def test_one_record_for_each_change_behind_all_changes() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    make(pure, [1, 2], name="other")
    changes = {
        (TOPIC, name): [Alteration(KEY, AlterOperation.SET, "1"), Alteration("retention.ms", AlterOperation.SET, "1")]
        for name in ("t", "nope", "other")
    }
    result = incremental_alter(pure.state, changes, False)
    assert [type(record) for record in result.records] == [ConfigRecord] * 4 + [ClearElrRecord] * 2
    assert incremental_alter(pure.state, changes, True).records == []
    old_way = legacy_alter(pure.state, {(TOPIC, "t"): {KEY: "1"}, (TOPIC, "other"): {}}, False)
    assert old_way.records == [config((TOPIC, "t"), "1"), ClearElrRecord(topic_name="t")]


@pytest.mark.parametrize(
    ("resource", "value", "said"),
    [
        ((BROKER, "1"), "1", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        ((BROKER, "1"), None, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        (CLUSTER, None, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
    ],
)
def test_what_would_give_brokers_different_minima_is_refused(resource: Resource, value: str | None, said: str) -> None:
    def verdict(pure: Pure) -> tuple[ErrorCode, str | None]:
        operation = AlterOperation.DELETE if value is None else AlterOperation.SET
        result = incremental_alter(pure.state, {resource: [Alteration(KEY, operation, value)]}, False)
        assert bool(result.records) == (not result.response[resource].failed)
        return result.response[resource]

    assert verdict(elr_on()) == (ErrorCode.INVALID_CONFIG, said)
    assert verdict(Pure()) == (ErrorCode.NONE, None)


def test_the_old_way_may_not_drop_the_minimum_of_the_cluster_either() -> None:
    pure = elr_on()
    found = legacy_alter(pure.state, {CLUSTER: {"log.retention.ms": "1"}}, False)
    assert (found.response[CLUSTER].code, found.records) == (ErrorCode.INVALID_CONFIG, [])
    kept = legacy_alter(pure.state, {CLUSTER: {"log.retention.ms": "1", KEY: "2"}}, False)
    assert kept.response[CLUSTER].code is ErrorCode.NONE


def test_a_topic_that_is_made_with_a_minimum() -> None:
    pure = elr_on()
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
        configs=[CreatableTopicConfig(name=KEY, value="1")],
    )
    result = create_topics(pure.state, CreateTopicsRequest(topics=[topic]), {"t"})
    assert [type(record) for record in result.records] == [TopicRecord, ConfigRecord, ClearElrRecord, PartitionRecord]
    pure.apply(result)
    lose(pure, 2)
    assert in_sync_and_eligible(partition(pure)) == ((1,), ())


def test_without_the_feature_nothing_is_written_or_refused() -> None:
    pure = Pure()
    make(pure, [1, 2])
    assert alter(pure, (TOPIC, "t"), "2") == [config((TOPIC, "t"), "2")]
    assert alter(pure, (BROKER, "1"), "2") == [config((BROKER, "1"), "2")]
    assert alter(pure, CLUSTER, None) == [config(CLUSTER, None)]


def enable(pure: Pure, level: int = 1, kind: int = 1, *, validate_only: bool = False) -> list[TopLevel]:
    result = update_features(
        pure.state,
        {ELR_VERSION: Update(level, kind)},
        validate_only,
        kraft_version=1,
        raise_kraft_version=lambda version: None,
    )
    assert result.response.code is ErrorCode.NONE, result.response
    pure.apply(result)
    return result.records


def test_switching_it_on_gives_all_brokers_one_minimum() -> None:
    level = FeatureLevelRecord(name=ELR_VERSION, feature_level=1)
    pure = Pure(brokers=0, config=node_config(min__insync__replicas="3"))
    pure.replay([config((BROKER, "2"), "2"), config((BROKER, "5"), "1")])
    assert enable(pure, validate_only=True) == []
    assert enable(pure) == [config(CLUSTER, "3"), config((BROKER, "2"), None), config((BROKER, "5"), None), level]
    # The cluster's value stays, and a second call changes nothing.
    assert enable(pure) == [level]
    pure = Pure(brokers=0)
    pure.replay([config(CLUSTER, "2")])
    assert enable(pure) == [level]


def test_switching_it_on_again_forgets_who_was_eligible_before() -> None:
    """While it is off the minimum may fall without a record. Apache Kafka elects such a replica."""
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2)
    assert enable(pure, 0, 2) == [FeatureLevelRecord(name=ELR_VERSION, feature_level=0)]
    assert partition(pure).elr == (2,)
    alter(pure, CLUSTER, "1")
    assert enable(pure)[0] == ClearElrRecord(topic_name="")
    assert partition(pure).elr == ()


def test_the_feature_needs_its_metadata_version() -> None:
    pure = Pure(brokers=0)
    pure.replay([FeatureLevelRecord(name="metadata.version", feature_level=22)])
    found = update_features(
        pure.state, {ELR_VERSION: Update(1, 1)}, False, kraft_version=1, raise_kraft_version=lambda version: None
    )
    assert found.response.code is ErrorCode.INVALID_UPDATE_VERSION
    assert "because it depends on metadata.version level 23" in str(found.response.message)
    both = {ELR_VERSION: Update(1, 1), "metadata.version": Update(23, 1)}
    assert (
        update_features(
            pure.state, both, False, kraft_version=1, raise_kraft_version=lambda version: None
        ).response.code
        is ErrorCode.NONE
    )


def test_a_controller_that_takes_over_from_a_snapshot_knows_of_no_eligible_replica() -> None:
    pure = elr_on()
    make(pure, [1, 2])
    lose(pure, 2)
    alter(pure, CLUSTER, "1")
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in image_records(pure.state.image):
        delta.replay(record)
    pure.state.reset(Checkpoint(delta.apply(pure.offset, 1)))
    assert in_sync_and_eligible(partition(pure)) == ((1,), ())
    lose(pure, 1)
    beat(pure, 2)
    assert partition(pure).leader == -1


def test_the_last_leader_is_known_also_where_others_are_in_sync() -> None:
    """A partition that loses its leader keeps it as the last known one. One without a leader to lose keeps none."""
    pure = elr_on()
    make(pure, [1, 2])
    gone = PartitionChangeRecord(topic_id=pure.state.image.topics.by_name["t"].id, partition_id=0, isr=[1])
    pure.replay([gone])
    lose(pure, 1)
    assert (partition(pure).leader, partition(pure).last_known_elr) == (-1, (1,))
    lose(pure, 2)
    assert partition(pure).last_known_elr == (1,)


# A broker that comes back (KIP-966): after an unclean stop it may lack unsynced records.

CLEAN, UNCLEAN = True, False


def restart(pure: Pure, broker_id: int, *, clean: bool, unregistered: bool = False) -> None:
    """Register a new incarnation, which names the epoch of its last clean stop, and keep it fenced. With `unregistered`
    the former one is removed from the metadata before."""
    pure.now_ms += SESSION_MS + 1
    epoch = pure.state.image.brokers[broker_id].epoch
    if unregistered:
        pure.apply(unregister_broker(pure.state, broker_id))
    for other in pure.state.image.brokers.values():
        if other.id != broker_id and not other.fenced:
            beat(pure, other.id)
    register(
        pure,
        broker_id,
        incarnation_id=bytes((pure.offset % 251, broker_id)) * 8,
        previous_broker_epoch=epoch if clean else -1,
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            Feature(name=ELR_VERSION, min_supported_version=0, max_supported_version=1),
        ],
    )


@pytest.mark.parametrize(("clean", "elr"), [(CLEAN, (1,)), (UNCLEAN, ())])
def test_an_eligible_replica_stays_eligible_after_a_clean_stop_alone(clean: bool, elr: tuple[int, ...]) -> None:
    pure = elr_on()
    make(pure, [0, 1, 2])
    lose(pure, 0, 1)
    assert in_sync_and_eligible(partition(pure)) == ((2,), (1,))
    restart(pure, 1, clean=clean)
    assert in_sync_and_eligible(partition(pure)) == ((2,), elr)
    assert partition(pure).leader == 2


def test_a_broker_that_was_unregistered_is_not_eligible_when_it_comes_back() -> None:
    """The controller cannot know whether its stop was clean, nor whether its disks are the old ones."""
    pure = elr_on()
    make(pure, [0])
    lose(pure, 0)
    assert in_sync_and_eligible(partition(pure)) == ((), (0,))
    restart(pure, 0, clean=CLEAN, unregistered=True)
    assert in_sync_and_eligible(partition(pure)) == ((), ())
    beat(pure, 0)
    assert (partition(pure).leader, partition(pure).leader_recovery_state) == (0, 1)


def test_the_last_in_sync_leads_again_after_a_clean_stop() -> None:
    pure = elr_on()
    make(pure, [0, 1, 2])
    lose(pure, 0, 1)
    restart(pure, 2, clean=CLEAN)
    assert in_sync_and_eligible(partition(pure)) == ((), (1, 2))
    assert partition(pure).leader == -1
    beat(pure, 2)
    assert in_sync_and_eligible(partition(pure)) == ((2,), (1,))
    assert (partition(pure).leader, partition(pure).leader_recovery_state) == (2, 0)


def test_after_an_unclean_stop_the_eligible_replica_leads_and_not_the_last_in_sync() -> None:
    pure = elr_on()
    make(pure, [0, 1, 2])
    lose(pure, 0, 1)
    restart(pure, 2, clean=UNCLEAN)
    assert in_sync_and_eligible(partition(pure)) == ((), (1,))
    for broker_id in (2, 0):
        beat(pure, broker_id)
        assert partition(pure).leader == -1
    beat(pure, 1)
    assert in_sync_and_eligible(partition(pure)) == ((1,), ())
    assert (partition(pure).leader, partition(pure).leader_recovery_state) == (1, 0)


def test_when_nobody_is_eligible_the_last_known_leader_leads_and_may_have_lost_records() -> None:
    pure = elr_on()
    make(pure, [0, 1, 2])
    lose(pure, 0, 1)
    restart(pure, 1, clean=UNCLEAN)
    restart(pure, 2, clean=UNCLEAN)
    assert in_sync_and_eligible(partition(pure)) == ((), ())
    for broker_id in (0, 1):
        beat(pure, broker_id)
        assert (partition(pure).leader, partition(pure).last_known_elr) == (-1, (2,))
    beat(pure, 2)
    assert in_sync_and_eligible(partition(pure)) == ((2,), ())
    assert (partition(pure).leader, partition(pure).last_known_elr) == (2, ())
    assert partition(pure).leader_recovery_state == 1
