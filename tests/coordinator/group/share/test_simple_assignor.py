"""The rules that the assignor of share groups keeps. compat_tests/consumer_groups compares it with Apache Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.coordinator.group.share.simple_assignor import ShareAssignment, ShareSubscriber, simple

A, B, C = (number.to_bytes(16) for number in (1, 2, 3))


def members(*names: str, topics: list[bytes]) -> dict[str, ShareSubscriber]:
    return {name: ShareSubscriber(topics, {}) for name in names}


def after(group: Mapping[str, ShareSubscriber], target: ShareAssignment) -> dict[str, ShareSubscriber]:
    """Return the members after this target. Members that are not in it are new."""
    return {
        name: member._replace(assigned={t: frozenset(p) for t, p in target.get(name, {}).items()})
        for name, member in group.items()
    }


def places(target: ShareAssignment) -> dict[str, set[tuple[bytes, int]]]:
    return {name: {(t, p) for t, numbers in own.items() for p in numbers} for name, own in target.items()}


def test_partitions_are_spread_over_members() -> None:
    target = simple(members("m1", "m2", topics=[A]), {A: range(4)}, mixed=False)
    assert target == {"m1": {A: {1, 3}}, "m2": {A: {0, 2}}}


def test_members_share_a_partition_if_there_are_too_few() -> None:
    target = simple(members("m1", "m2", "m3", topics=[A]), {A: range(1)}, mixed=False)
    assert target == {name: {A: {0}} for name in ("m1", "m2", "m3")}


def test_a_member_that_joins_takes_only_what_is_too_much_for_another() -> None:
    first = simple(members("m1", topics=[A]), {A: range(4)}, mixed=False)
    second = simple(after(members("m1", "m2", topics=[A]), first), {A: range(4)}, mixed=False)
    assert second == {"m1": {A: {0, 3}}, "m2": {A: {1, 2}}}


def test_partitions_of_a_member_that_left_go_to_the_others() -> None:
    first = simple(members("m1", "m2", topics=[A]), {A: range(4)}, mixed=False)
    second = simple(after(members("m2", topics=[A]), first), {A: range(4)}, mixed=False)
    assert second == {"m2": {A: {0, 1, 2, 3}}}


def test_only_assignable_partitions_are_assigned() -> None:
    group = members("m1", topics=[A, B])
    assert simple(group, {}, mixed=False) == {"m1": {}}
    assert simple(group, {A: [1, 3]}, mixed=False) == {"m1": {A: {1, 3}}}


def test_topics_without_a_subscription_are_given_up() -> None:
    first = simple(members("m1", topics=[A, B]), {A: [0], B: [0]}, mixed=False)
    second = simple(after(members("m1", topics=[B]), first), {B: [0]}, mixed=False)
    assert second == {"m1": {B: {0}}}
    assert simple(after(members("m1", topics=[]), second), {}, mixed=False) == {"m1": {}}


def test_each_topic_of_a_mixed_group_is_balanced_on_its_own() -> None:
    group = {
        "m1": ShareSubscriber([A], {}),
        "m2": ShareSubscriber([B], {}),
        "m3": ShareSubscriber([A, B], {}),
    }
    target = simple(group, {A: range(4), B: range(2)}, mixed=True)
    assert target == {"m1": {A: {0, 2}}, "m2": {B: {0}}, "m3": {A: {1, 3}, B: {1}}}


def test_a_topic_that_a_mixed_group_no_longer_subscribes_to_stays_in_the_target() -> None:
    group = {
        "m1": ShareSubscriber([A], {A: frozenset({0}), C: frozenset({0})}),
        "m2": ShareSubscriber([B], {A: frozenset({1})}),
    }
    target = simple(group, {A: range(2), B: range(1)}, mixed=True)
    assert target == {"m1": {A: {0, 1}, C: {0}}, "m2": {A: set(), B: {0}}}


@pytest.mark.parametrize("mixed", [False, True])
def test_a_group_without_members_has_no_target(mixed: bool) -> None:
    assert simple({}, {A: range(3)}, mixed=mixed) == {}


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    groups=st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_members_that_come_and_go_share_all_partitions_evenly(counts: list[int], groups: list[set[int]]) -> None:
    topics = [A, B, C][: len(counts)]
    partitions = dict(zip(topics, map(range, counts), strict=True))
    total = sum(counts)
    target: ShareAssignment = {}
    for numbers in groups:
        group = after(members(*(f"m{number}" for number in sorted(numbers)), topics=topics), target)
        target = simple(group, partitions, mixed=False)
        own = places(target)
        assert own.keys() == group.keys()
        if not total:
            assert not any(own.values())
            continue
        sharing = ceil(len(group) / total)
        holders = [
            sum(place in found for found in own.values()) for t in topics for place in ((t, p) for p in partitions[t])
        ]
        assert all(1 <= count <= sharing for count in holders)
        assert max(map(len, own.values())) <= ceil(sharing * total / len(group))
        # The same members and partitions get the same target again.
        assert simple(after(group, target), partitions, mixed=False) == target
