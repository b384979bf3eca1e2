"""The rules that the assignors of consumer groups keep. compat_tests/consumer_groups compares them with Apache
Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.coordinator.group.consumer.assign import ASSIGNORS, Assignment, Subscriber, range_, uniform
from pykbroker.coordinator.java import collection_buckets, uuid_hash, uuid_order


class Topics:
    def __init__(self, counts: Mapping[bytes, int]) -> None:
        self._counts = counts

    def partition_count(self, topic_id: bytes) -> int:
        return self._counts.get(topic_id, -1)

    def racks(self, topic_id: bytes, partition: int) -> frozenset[str]:
        return frozenset()


def topic(number: int) -> bytes:
    return number.to_bytes(16)


def subscriber(*topics: bytes, instance_id: str | None = None) -> Subscriber:
    return Subscriber(instance_id, None, frozenset(topics), {})


def after(members: Mapping[str, Subscriber], target: Assignment) -> dict[str, Subscriber]:
    """Return the members after this target. Members that are not in it are new."""
    return {
        member_id: member._replace(assigned={t: frozenset(p) for t, p in target.get(member_id, {}).items()})
        for member_id, member in members.items()
    }


def owned(own: Mapping[bytes, set[int]]) -> set[tuple[bytes, int]]:
    return {(topic_id, partition) for topic_id, partitions in own.items() for partition in partitions}


def load(own: Mapping[bytes, set[int]]) -> int:
    return sum(map(len, own.values()))


def check(members: Mapping[str, Subscriber], counts: Mapping[bytes, int], target: Assignment) -> None:
    """Check that each partition of a subscribed topic has one owner, which subscribes to the topic."""
    assert target.keys() == members.keys()
    for member_id, own in target.items():
        assert own.keys() <= members[member_id].topic_ids
        assert all(own.values())
    subscribed = frozenset().union(*(member.topic_ids for member in members.values()))
    expected = {(t, p) for t in subscribed for p in range(counts.get(t, 0))}
    assert sum(map(load, target.values())) == len(expected)
    assert set().union(*map(owned, target.values())) == expected


counts_of = st.dictionaries(st.integers(1, 8).map(topic), st.integers(1, 13), min_size=1)
member_ids = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=9, unique=True)
subscriptions = st.frozensets(st.integers(1, 9).map(topic), max_size=9)  # topic 9 does not exist


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNORS)
@settings(deadline=None)
@given(counts=counts_of, names=member_ids, data=st.data())
def test_every_partition_has_one_owner_who_subscribes_to_it(
    name: str, counts: dict[bytes, int], names: list[str], data: st.DataObject
) -> None:
    target: Assignment = {}
    members: dict[str, Subscriber] = {}
    for _ in range(3):
        present = data.draw(st.sets(st.sampled_from(names), min_size=1))
        members = after({n: subscriber(*data.draw(subscriptions)) for n in sorted(present)}, target)
        target = ASSIGNORS[name](members, Topics(counts))
        check(members, counts, target)


@pytest.mark.slow
@settings(deadline=None)
@given(counts=counts_of, names=member_ids, data=st.data())
def test_uniform_is_balanced_and_moves_no_more_than_it_must(
    counts: dict[bytes, int], names: list[str], data: st.DataObject
) -> None:
    shared = data.draw(subscriptions)
    before = uniform({n: subscriber(*shared) for n in names}, Topics(counts))
    present = data.draw(st.sets(st.sampled_from([*names, "one-more", "two-more"]), min_size=1))
    members = after({n: subscriber(*shared) for n in sorted(present)}, before)
    target = uniform(members, Topics(counts))

    loads = [load(own) for own in target.values()]
    assert max(loads) - min(loads) <= 1
    # A member that stays keeps everything up to the larger share. It loses only partitions beyond that, or makes room
    # for members that have less than the smaller share.
    quota, extra = divmod(sum(loads), len(members))
    kept = {n: len(owned(target[n]) & owned(before.get(n, {}))) for n in members}
    most_that_can_stay = sum(min(load(before.get(n, {})), quota) for n in members)
    with_more = sum(load(before.get(n, {})) > quota for n in members)
    assert sum(kept.values()) == most_that_can_stay + min(with_more, extra)


@pytest.mark.slow
@settings(deadline=None)
@given(counts=counts_of, names=member_ids, data=st.data())
def test_the_same_group_again_moves_nothing(counts: dict[bytes, int], names: list[str], data: st.DataObject) -> None:
    members = {n: subscriber(*data.draw(subscriptions)) for n in names}
    for assignor in ASSIGNORS.values():
        target = assignor(members, Topics(counts))
        again = assignor(after(members, target), Topics(counts))
        assert again == target


@pytest.mark.slow
@settings(deadline=None)
@given(count=st.integers(1, 20), topics=st.integers(1, 4), names=member_ids)
def test_range_puts_the_same_numbers_of_all_topics_together(count: int, topics: int, names: list[str]) -> None:
    counts = {topic(number): count for number in range(topics)}
    for own in range_({n: subscriber(*counts) for n in names}, Topics(counts)).values():
        assert len({frozenset(partitions) for partitions in own.values()}) <= 1
        for partitions in own.values():
            assert max(partitions) - min(partitions) == len(partitions) - 1


def test_range_takes_static_members_first() -> None:
    counts = {topic(1): 5}
    members = {
        "a": subscriber(topic(1)),
        "b": subscriber(topic(1), instance_id="y"),
        "c": subscriber(topic(1), instance_id="x"),
    }
    assert range_(members, Topics(counts)) == {"c": {topic(1): {0, 1}}, "b": {topic(1): {2, 3}}, "a": {topic(1): {4}}}
    # The instance id counts, not the member id with which the member came back.
    again = {"z" if name == "c" else name: member for name, member in members.items()}
    assert range_(again, Topics(counts))["z"] == {topic(1): {0, 1}}


def test_a_target_with_more_partitions_than_are_known_here_loses_them() -> None:
    """Regression: the coordinator that computed the target had newer metadata, and the quotas did not add up."""
    members = {
        "a": subscriber(topic(1))._replace(assigned={topic(1): frozenset({0, 1, 2, 3})}),
        "b": subscriber(topic(1)),
    }
    check(members, {topic(1): 2}, uniform(members, Topics({topic(1): 2})))
    members["b"] = subscriber(topic(1), topic(2))
    counts = {topic(1): 2, topic(2): 1}
    check(members, counts, uniform(members, Topics(counts)))


def test_hashes_and_orders_of_uuids() -> None:
    assert uuid_hash((1).to_bytes(8) + (2).to_bytes(8)) == 3
    assert uuid_hash(b"\xff" * 8 + bytes(8)) == 0
    assert sorted([b"\x80" + bytes(15), bytes(16)], key=uuid_order) == [b"\x80" + bytes(15), bytes(16)]
    assert [collection_buckets(size) for size in (0, 11, 12, 23, 24, 48)] == [16, 16, 32, 32, 64, 128]
