"""The work of a handler grows with the size of a request and no faster: elements named twice, and lists in lists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import describe_configs, describe_producers, list_offsets
from pykbroker.api.offset_commit import _merge
from pykbroker.config import describe
from pykbroker.controller.topics import check_assignment
from pykbroker.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState
from pykbroker.coordinator.group.classic.classic_member import Member
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.api.broker_half import Half
from tests.growth import assert_grows_no_faster

MANY = 2_000
#: a broker that takes new replicas
OPEN = SimpleNamespace(is_cordoned=False)


@pytest.mark.slow
def test_partitions_that_list_offsets_names_twice_are_looked_for_once() -> None:
    half = Half()

    def make(count: int) -> Callable[[], object]:
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count) for _ in range(2)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        ctx = half.context(request)
        return lambda: list_offsets._respond(ctx, request, list_offsets._Progress())

    assert_grows_no_faster(make, MANY)


@pytest.mark.slow
def test_refused_and_accepted_topics_of_an_offset_commit_meet_by_name() -> None:
    def topic(number: int) -> OffsetCommitResponseTopic:
        partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=0)]
        return OffsetCommitResponseTopic(name=f"t{number}", topic_id=number.to_bytes(16, "big"), partitions=partitions)

    def make(count: int) -> Callable[[], object]:
        refused, accepted = [topic(each) for each in range(count)], [topic(each + count) for each in range(count)]
        return lambda: _merge(refused, OffsetCommitResponse(topics=accepted))

    assert_grows_no_faster(make, MANY)
    merged = _merge([topic(1), topic(2)], OffsetCommitResponse(topics=[topic(2), topic(3)])).topics
    assert [(each.name, len(each.partitions)) for each in merged] == [("t1", 1), ("t2", 2), ("t3", 1)]


@pytest.mark.parametrize("broker", [lambda index: index // 2, lambda index: index, lambda index: 0])
def test_a_long_list_of_replicas_is_counted_once(broker: Callable[[int], int]) -> None:
    def make(count: int) -> Callable[[], object]:
        replicas = [broker(index) for index in range(count)]
        state = cast(Any, SimpleNamespace(image=SimpleNamespace(brokers=dict.fromkeys(range(count), OPEN))))

        def call() -> None:
            with contextlib.suppress(KafkaError):
                check_assignment(state, replicas)

        return call

    assert_grows_no_faster(make, MANY)


def test_a_broker_that_stands_twice_is_named() -> None:
    state = cast(Any, SimpleNamespace(image=SimpleNamespace(brokers={1: OPEN, 2: OPEN})))
    with pytest.raises(KafkaError, match="the broker 2 more than once"):
        check_assignment(state, [1, 2, 2])
    with pytest.raises(KafkaError, match="broker 3, but no such broker"):
        check_assignment(state, [4, 1, 3])


def test_joining_costs_no_more_because_a_member_has_many_protocols() -> None:
    def make(count: int) -> Callable[[], object]:
        group = ClassicGroup("g", 0)
        group.members["m"] = Member("m", None, "c", "h", 1, 1, tuple((f"p{each}", b"") for each in range(count)))
        group.state = ClassicGroupState.STABLE
        group.protocol_type = "consumer"
        return lambda: [group.supports("consumer", ["p0"]) for _ in range(count)]

    assert_grows_no_faster(make, MANY)


def test_what_is_described_twice_is_answered_once() -> None:
    half = Half()
    configs = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in ("t", "u", "t")]
    )
    assert [each.resource_name for each in half.ask(describe_configs, configs).results] == ["t", "u"]
    topics = [TopicRequest(name=name, partition_indexes=[0, 1, 0]) for name in ("t", "u", "t")]
    request = DescribeProducersRequest(topics=topics)
    answer = describe_producers._respond(half.context(request), request)
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == [
        ("t", [0, 1]),
        ("u", [0, 1]),
    ]


def test_what_resources_have_in_common_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are thousands of groups, which need not exist, and thousands of keys of one broker."""
    described: list[str] = []

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def describe_it(*given: Any) -> Any:
            described.append(name)
            return original(*given)

        return describe_it

    for name in ("groups_of", "describe_broker"):
        monkeypatch.setattr(describe, name, counted(name, getattr(describe, name)))
    half = Half()
    groups = [DescribeConfigsResource(resource_type=32, resource_name=f"g{number}") for number in range(3)]
    keys = [
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[key])
        for key in ("node.id", "log.dirs", "num.partitions")
    ]
    results = half.ask(describe_configs, DescribeConfigsRequest(resources=groups + keys)).results
    assert [len(each.configs) for each in results[3:]] == [1, 1, 1]
    assert [each.configs for each in results[:2]] == [results[2].configs] * 2
    assert described == ["groups_of", "describe_broker"]
