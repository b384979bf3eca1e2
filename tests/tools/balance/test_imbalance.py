"""The distance of brokers from the mean load, and its cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pykbroker.tools.balance.imbalance import Imbalance
from pykbroker.tools.balance.load_model import ClusterLoad, Floats
from pykbroker.tools.balance.optimiser import equal_weights
from testkit.balance.clusters import cluster


@pytest.fixture
def load() -> ClusterLoad:
    """Return three brokers, of which one leaves and one takes no replicas."""
    leaving = np.array([False, True, False])
    return replace(cluster(3, 6, racks=3), leaving=leaving, may_take=np.array([True, False, False]))


def totals(load: ClusterLoad, *disks: float) -> Floats:
    """Return these loads of the brokers, the same for each resource."""
    return np.repeat(np.array(disks)[:, None], len(equal_weights()), axis=1)


def test_a_broker_that_leaves_has_its_whole_load_as_distance_and_one_that_does_not_count_has_none(
    load: ClusterLoad,
) -> None:
    found = Imbalance(load, totals(load, 4.0, 2.0, 9.0), equal_weights())
    # The one broker that takes replicas is to have the load of both that count.
    assert found.distances[:, 0].tolist() == [-2.0, 2.0, 0.0]
    assert found.in_means()[:, 0].tolist() == pytest.approx([-1 / 3, 1 / 3, 0.0])
    assert found.above_mean().tolist() == pytest.approx([-1 / 3, 1 / 3, 0.0])
    assert found.cost == pytest.approx(2 * (equal_weights() / 9).sum())


def test_a_load_that_is_added_to_a_broker_that_does_not_count_costs_nothing(load: ClusterLoad) -> None:
    found = Imbalance(load, totals(load, 4.0, 2.0, 9.0), equal_weights())
    before, vector = found.cost, totals(load, 1.0)[0]
    found.add(2, vector)
    assert found.cost == before
    worth = found.worth_of_move(vector, 1)
    found.add(1, -vector)
    found.add(0, vector)
    assert found.cost - before == pytest.approx(worth[0])


def test_a_resource_without_load_or_weight_costs_nothing(load: ClusterLoad) -> None:
    weights = np.zeros_like(equal_weights())
    assert Imbalance(load, totals(load, 4.0, 2.0, 9.0), weights).cost == 0.0
    assert Imbalance(load, totals(load, 0.0, 0.0, 0.0), equal_weights()).cost == 0.0
