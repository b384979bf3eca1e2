"""goals.py, compared with a judge that counts with sets, and with all placements of tiny clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.tools.balance.goals import fewest_rack_pairs, violations
from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Flags, Ints
from pykbroker.tools.balance.seen import LoadResource
from testkit.balance.clusters import cluster


def pairs(racks: list[int]) -> int:
    return sum(first == second for first, second in combinations(racks, 2))


def fewest(load: ClusterLoad, count: int) -> int:
    """Return the fewest pairs of all placements, or the most possible if there is no placement."""
    takers = np.flatnonzero(load.may_take).tolist()
    every = [pairs([int(load.racks[each]) for each in chosen]) for chosen in combinations(takers, count)]
    return min(every, default=count * (count - 1) // 2)


def judged(load: ClusterLoad, replicas: Ints) -> set[tuple[str, int]]:
    """Return the goals of `violations`, computed from their descriptions."""
    found = set()
    leaders, followed, disk, counts = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    for number, (before, after) in enumerate(zip(load.replicas.tolist(), replicas.tolist(), strict=True)):
        old = [each for each in before if each != NO_BROKER]
        new = [each for each in after if each != NO_BROKER]
        rules = {
            "replica count": len(old) != len(new),
            "one replica a broker": len(set(new)) < len(new),
            "stays where it is": Counter(old) != Counter(new) and not load.may_move[number],
            "keeps its order": Counter(old) == Counter(new) and old != new and not load.may_reorder[number],
            "brokers that are gone": old != new and not all(load.alive[each] for each in new),
            "racks": bool(load.may_move[number])
            and pairs([int(load.racks[each]) for each in new]) > fewest(load, len(old)),
            "takes no replica": any(each not in old and not load.may_take[each] for each in new),
        }
        found |= {(goal, number) for goal, is_broken in rules.items() if is_broken}
        counts.update(new)
        leaders.update(new[:1])
        for each in new:
            disk[each] += load.size[number]
        for each in new[1:]:
            followed[each] += load.bytes_in[number]
    for broker in range(len(load.racks)):
        if load.leaving[broker] and counts[broker]:
            found.add(("leaves", broker))
        if not load.alive[broker]:
            continue
        if counts[broker] > load.most_replicas[broker]:
            found.add(("number of replicas", broker))
        have = {LoadResource.LEADERS: leaders, LoadResource.DISK: disk, LoadResource.REPLICATION_BYTES_IN: followed}
        for resource, loads in have.items():
            if loads[broker] > load.capacity[broker, resource] * 1.000001 + 1e-6:
                found.add((f"capacity of {resource.name}", broker))
    return found


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_both_judges_agree(data: st.DataObject) -> None:
    brokers = data.draw(st.integers(1, 6))
    random = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    load = cluster(6, 5, replicas=3, seed=1)

    def some(share: float, count: int = brokers) -> Flags:
        return random.random(count) < share

    def row(_: int) -> list[int]:
        width = min(brokers, int(random.integers(1, 4)))
        chosen: list[int] = random.choice(brokers, width, replace=bool(random.random() < 0.1)).tolist()
        return chosen + [NO_BROKER] * (3 - width)

    alive, leaving = some(0.8), some(0.2)
    capacity = np.full((brokers, len(LoadResource)), np.inf)
    capacity[:, LoadResource.LEADERS] = random.integers(0, 4, brokers)
    capacity[:, LoadResource.DISK] = load.size.sum() * random.random(brokers)
    capacity[:, LoadResource.REPLICATION_BYTES_IN] = load.bytes_in.sum() * random.random(brokers)
    load = replace(
        load,
        racks=random.integers(0, 3, brokers).astype(np.int32),
        capacity=capacity,
        most_replicas=random.integers(0, 6, brokers).astype(np.int32),
        alive=alive,
        leaving=leaving,
        may_take=alive & ~leaving,
        replicas=np.array([row(each) for each in range(5)], np.int32),
        may_move=some(0.7, 5),
        may_reorder=some(0.7, 5),
    )
    after = np.array([row(each) for each in range(5)], np.int32)
    kept = some(0.4, 5)
    after[kept] = load.replicas[kept]
    told = [(each.goal, each.subject) for each in violations(load, after)]
    assert set(told) == judged(load, after)


@pytest.mark.parametrize("racks", [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0, 1, 2]])
def test_the_fewest_pairs_of_unequal_racks(racks: list[int]) -> None:
    """A rack with one broker has room for one replica."""
    load = cluster(len(racks), 4)
    rows = [[*range(count), *[NO_BROKER] * (4 - count)] for count in (1, 2, 3, 4)]
    load = replace(load, racks=np.array(racks, np.int32), replicas=np.array(rows, np.int32))
    assert fewest_rack_pairs(load).tolist() == [fewest(load, count) for count in (1, 2, 3, 4)]


def test_a_broker_that_leaves_and_keeps_what_may_not_move() -> None:
    load = cluster()
    leaving = np.arange(12) == 0
    held = replace(load, leaving=leaving, may_take=~leaving, may_move=np.zeros(600, bool))
    (told,) = [each for each in violations(held, held.replicas) if each.goal == "leaves"]
    assert told.subject == 0
    assert told.is_of_broker
    assert told.text == f"leaves and keeps {(load.replicas == 0).sum()} replicas"
