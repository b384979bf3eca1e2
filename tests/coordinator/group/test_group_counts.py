"""Counting all groups in turns."""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group.classic.classic_group import ClassicGroup
from pykbroker.coordinator.group.group_counts import CountInTurns
from pykbroker.coordinator.group.settings import GroupSettings
from pykbroker.coordinator.group.shard import GroupShard
from tests.coordinator.fakes import Loop, as_loop
from tests.coordinator.group.consumers import ConsumerBench
from tests.coordinator.group.harness import Bench


def shard_of(*names: str) -> GroupShard:
    shard = GroupShard(0, GroupSettings())
    shard.groups.update({name: ClassicGroup(name, 0) for name in names})
    return shard


def test_groups_count_by_kind_and_state() -> None:
    classic, consumer = Bench(), ConsumerBench()
    classic.stable(1, "stable")
    classic.commit("empty", {("t", 0): 1, ("u", 3): 1})
    classic.new_member("joining")
    consumer.create("t")
    consumer.beat("m1", topics=["t"])
    counting = CountInTurns(as_loop(Loop()), lambda: [classic.shard, consumer.shard])
    assert not counting.latest.groups
    assert counting.count() is None
    assert counting.latest.groups == {
        ("classic", "Stable"): 1,
        ("classic", "Empty"): 1,
        ("classic", "PreparingRebalance"): 1,
        ("consumer", "Stable"): 1,
    }
    assert (counting.latest.of_kind("classic"), counting.latest.of_kind("consumer")) == (3, 1)
    assert counting.latest.offsets == 2
    consumer.beat("m1", -1)
    counting.count()
    assert counting.latest.groups["consumer", "Empty"] == 1


def test_many_groups_are_counted_in_turns_that_others_share() -> None:
    loop = Loop()
    shards = [shard_of(*(f"{index}-{number}" for number in range(500))) for index in range(2)]
    counting = CountInTurns(as_loop(loop), lambda: list(shards))
    loop.cost_per_look = 0.003
    later = counting.count()
    assert later is not None
    assert counting.count() is later, "a second reader waits for the same count"
    assert not counting.latest.groups
    turns = 0
    while not later.done():
        shards[1].groups.pop(f"1-{turns}", None)  # groups come and go in between
        shards[1].groups[f"new-{turns}"] = ClassicGroup(f"new-{turns}", 0)
        loop.turn()
        turns += 1
    assert turns > 10
    assert 900 < counting.latest.of_kind("classic") < 1100
    loop.cost_per_look = 0.0
    assert counting.count() is None
    assert counting.latest.of_kind("classic") == 1000


def test_a_bug_reaches_the_reader_and_the_next_count_starts_anew() -> None:
    broken = [True]

    def shards() -> list[GroupShard]:
        return [None] if broken[0] else [shard_of("a")]  # type: ignore[list-item]

    counting = CountInTurns(as_loop(Loop()), shards)
    with pytest.raises(AttributeError):
        counting.count()
    broken[0] = False
    assert counting.count() is None
    assert counting.latest.of_kind("classic") == 1
