"""CreateTopics, DeleteTopics, CreatePartitions as decisions: records in, records out."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import cycle
from random import Random

import pytest

from pykbroker.controller.placement import UsableBroker, place
from pykbroker.controller.topics import create_partitions, create_topics, delete_topics
from pykbroker.metadata.image import ConfigResource
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from pykbroker_wire.primitives import random_uuid, uuid_to_str
from tests.controller.test_brokers import beat
from tests.controller.world import Pure, directory_of, node_config


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: list[tuple[int, list[int]]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in assignments or []],
    )


def create(pure: Pure, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    response = pure.apply(create_topics(pure.state, request, {t.name for t in topics}))
    return list(response.topics)


def test_records_of_a_topic_in_kafkas_order() -> None:
    pure = Pure()
    request = CreateTopicsRequest(topics=[topic("t", 2, 3, {"retention.ms": "5"})])
    result = create_topics(pure.state, request, {"t"})
    names = [type(record).__name__ for record in result.records]
    assert names == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]
    pure.apply(result)
    image = pure.state.image.topics.by_name["t"]
    partition = image.partitions[0]
    assert sorted(partition.replicas) == [0, 1, 2]
    assert partition.isr == partition.replicas
    assert partition.leader == partition.replicas[0]
    assert partition.directories == tuple(directory_of(replica) for replica in partition.replicas)
    assert pure.state.image.configs.of(ConfigResource.TOPIC, "t") == {"retention.ms": "5"}


def test_the_answer_tells_what_was_made() -> None:
    (result,) = create(Pure(), topic("t", -1, -1, {"retention.ms": "5"}))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (1, 1)
    assert result.configs is not None
    configs = {config.name: config for config in result.configs}
    assert list(configs) == sorted(configs)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
    assert "internal.segment.bytes" not in configs


def test_configuration_is_told_only_to_those_who_may_know() -> None:
    pure = Pure()
    response = pure.apply(create_topics(pure.state, CreateTopicsRequest(topics=[topic("t")]), set()))
    (result,) = response.topics
    assert result.error_code == 0
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


def test_validate_only_makes_nothing() -> None:
    pure = Pure()
    (result,) = create(pure, topic("t", 3), validate_only=True)
    assert result.error_code == 0
    assert result.num_partitions == 3
    assert not pure.state.image.topics.by_name


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("do.tted"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs={"nope": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refusals(wanted: CreatableTopic, code: ErrorCode) -> None:
    pure = Pure()
    create(pure, topic("there"), topic("do_tted"))
    bad, good = create(pure, wanted, topic("good"))
    assert bad.error_code == code
    assert bad.error_message
    assert (bad.num_partitions, bad.replication_factor) == (-1, -1)
    assert good.error_code == 0
    assert set(pure.state.image.topics.by_name) == {"there", "do_tted", "good"}


def test_too_many_partitions_refuse_the_whole_request() -> None:
    pure = Pure()
    with pytest.raises(KafkaError) as caught:
        create(pure, topic("a", 9_000), topic("b", 1_001))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_too_many_records_refuse_the_whole_request() -> None:
    pure = Pure()
    with pytest.raises(KafkaError) as caught:
        create(pure, *(topic(f"t{index}") for index in range(5_001)))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert not pure.state.image.topics.by_name


def test_a_manual_assignment_leads_from_its_first_live_replica() -> None:
    pure = Pure()
    pure.replay(_fence(pure, 2))
    create(pure, topic("t", -1, -1, assignments=[(0, [2, 1]), (1, [0, 1])]))
    partitions = pure.state.image.topics.by_name["t"].partitions
    assert (partitions[0].leader, partitions[0].isr, partitions[0].replicas) == (1, (1,), (2, 1))
    assert (partitions[1].leader, partitions[1].isr) == (0, (0, 1))


def _fence(pure: Pure, broker_id: int) -> list:  # type: ignore[type-arg]
    from pykbroker.controller.brokers import fence_records

    return fence_records(pure.state, pure.state.image.brokers[broker_id])


def test_defaults_come_from_the_controllers_configuration() -> None:
    pure = Pure(config=node_config(num__partitions="4", default__replication__factor="2"))
    (result,) = create(pure, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_ten_times_the_partitions_are_ten_times_the_work() -> None:
    def calls(partitions: int) -> int:
        """Return how many calls of functions it takes."""
        pure = Pure()
        request = CreateTopicsRequest(topics=[topic("t", partitions, 3)])
        made = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            pure.apply(create_topics(pure.state, request, {"t"}))
        finally:
            sys.setprofile(None)
        leaders = Counter(p.leader for p in pure.state.image.topics.by_name["t"].partitions.values())
        assert max(leaders.values()) - min(leaders.values()) <= 2
        return made

    assert calls(1_000) < 11 * calls(100)


def test_delete() -> None:
    pure = Pure()
    (made,) = create(pure, topic("a.b", configs={"retention.ms": "1"}))
    verdicts = pure.apply(delete_topics(pure.state, [made.topic_id, b"u" * 16]))
    assert verdicts[made.topic_id].code is ErrorCode.NONE
    assert verdicts[b"u" * 16].code is ErrorCode.UNKNOWN_TOPIC_ID
    assert not pure.state.image.topics.by_id
    assert not pure.state.image.configs.by_resource
    # The name is free again, and so is the one that collided with it.
    assert create(pure, topic("a_b"))[0].error_code == 0


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 4, None, ErrorCode.NONE),
        ("t", 3, [[0, 1]], ErrorCode.NONE),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("nope", 4, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_create_partitions(name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    pure = Pure()
    create(pure, topic("t", 2, 2))
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None if assignments is None else [CreatePartitionsAssignment(broker_ids=b) for b in assignments],
    )
    assert not create_partitions(pure.state, [wanted], True).records
    (result,) = pure.apply(create_partitions(pure.state, [wanted], False))
    assert result.error_code == code
    partitions = pure.state.image.topics.by_name["t"].partitions
    assert len(partitions) == (count if code is ErrorCode.NONE else 2)
    assert all(len(p.replicas) == 2 for p in partitions.values())


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_topics_whose_number_of_partitions_places_records_are_not_grown(name: str) -> None:
    pure = Pure()
    create(pure, topic(name, 2, 2))
    for count in (3, 2, 1):
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        (result,) = pure.apply(create_partitions(pure.state, [wanted], False))
        assert result.error_code == ErrorCode.INVALID_PARTITIONS
        assert ("keeps its 2 partition(s)" in result.error_message) == (count == 3)
    assert len(pure.state.image.topics.by_name[name].partitions) == 2


def test_racks_are_spread() -> None:
    pure = Pure(brokers=6, racks=cycle(["x", "y", "z"]))
    create(pure, topic("t", 30, 3))
    racks = {broker.id: broker.rack for broker in pure.state.image.brokers.values()}
    for partition in pure.state.image.topics.by_name["t"].partitions.values():
        assert {racks[replica] for replica in partition.replicas} == {"x", "y", "z"}


def test_a_fenced_broker_gets_replicas_and_is_not_in_sync() -> None:
    pure = Pure(brokers=3)
    beat(pure, 1, want_fence=True)
    create(pure, topic("t", 6, 3))
    for partition in pure.state.image.topics.by_name["t"].partitions.values():
        assert sorted(partition.replicas) == [0, 1, 2]
        assert partition.isr == tuple(replica for replica in partition.replicas if replica != 1)
        assert partition.leader == partition.isr[0]


def test_placement_uses_fenced_brokers_last_and_never_first() -> None:
    brokers = [UsableBroker(1, None, False), UsableBroker(2, None, True), UsableBroker(3, None, False)]
    for replicas in place(brokers, 50, 2, Random(5)):
        assert set(replicas) == {1, 3}
    for replicas in place(brokers, 50, 3, Random(5)):
        assert replicas[0] != 2
        assert sorted(replicas) == [1, 2, 3]
    with pytest.raises(KafkaError):
        place([UsableBroker(1, None, True)], 1, 1, Random(5))


def test_topic_ids_are_plain() -> None:
    random = Random(1)
    for _ in range(500):
        value = random_uuid(random)
        assert not uuid_to_str(value).startswith("-")
        assert value[6] >> 4 == 4
