"""The computed worth of a change, compared with the difference that it makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pykbroker.tools.balance.costed_placement import Placement
from pykbroker.tools.balance.load_model import ClusterLoad
from pykbroker.tools.balance.optimiser import equal_weights
from pykbroker.tools.balance.seen import LoadResource
from testkit.balance.clusters import cluster


def placement(seed: int) -> Placement:
    """Return a placement in which one broker leaves, and two are not counted."""
    load = cluster(8, 30, racks=4, seed=seed, skew=0.2)
    leaving = np.arange(8) == 3
    nothing = np.isin(np.arange(8), [5, 6])
    return Placement(replace(load, leaving=leaving, may_take=~leaving & ~nothing), equal_weights())


@pytest.mark.parametrize("seed", range(3))
def test_the_worth_of_leaders(seed: int) -> None:
    place = placement(seed)
    best, places = place.worth_of_leaders()
    before = place.imbalance.cost
    for partition in range(30):
        found = []
        for other in (1, 2):
            worth = place.worth_of_leader(partition, other)
            place.lead(partition, other)
            assert place.imbalance.cost - before == pytest.approx(worth, abs=1e-9)
            place.lead(partition, other)
            if place.load.may_take[place.replicas[partition, other]]:
                found.append((worth, other))
        if not found:
            assert best[partition] == np.inf
        else:
            assert best[partition] == pytest.approx(min(found)[0], abs=1e-9)
            assert {other: worth for worth, other in found}[int(places[partition])] == pytest.approx(
                best[partition], abs=1e-9
            )


@pytest.mark.parametrize("seed", range(3))
def test_the_worth_of_moves(seed: int) -> None:
    place = placement(seed)
    before = place.imbalance.cost
    for partition in range(30):
        for spot in range(3):
            source = int(place.replicas[partition, spot])
            worth = place.imbalance.worth_of_moves(place.vector(partition, spot)[None, :], source)[0]
            assert place.imbalance.worth_of_move(place.vector(partition, spot), source) == pytest.approx(
                worth, abs=1e-9
            )
            for target in set(range(8)) - set(place.replicas[partition].tolist()):
                place.put(partition, spot, target)
                assert place.imbalance.cost - before == pytest.approx(worth[target], abs=1e-9)
                place.put(partition, spot, source)


def one_partition(resource: LoadResource, limit: float) -> ClusterLoad:
    load = replace(cluster(2, 1, replicas=2, racks=2), replicas=np.array([[0, 1]], np.int32))
    load.capacity[0, resource] = limit
    return load


@pytest.mark.parametrize("resource", [LoadResource.REPLICATION_BYTES_IN, LoadResource.CPU])
def test_a_leader_that_has_no_room_to_follow(resource: LoadResource) -> None:
    load = one_partition(resource, 0.0)
    if resource is LoadResource.CPU:
        load = replace(load, leader_cpu=np.zeros(1), follower_cpu=np.ones(1))
    assert Placement(load, equal_weights()).worth_of_leader(0, 1) == np.inf
    assert Placement(one_partition(resource, np.inf), equal_weights()).worth_of_leader(0, 1) < np.inf
