"""Groups on whole nodes whose members die and whose coordinators crash; a failing seed is printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.groups import classic, consumer, static
from tests.simulation.stage import Stage

pytestmark = pytest.mark.slow

QUORUMS = [Quorum.STATIC, Quorum.DYNAMIC]


def each_seed(first: int, run: Callable[[int], Stage], count: int) -> int:
    """Run a block of seeds; a failure names its seed. Return how many logs of coordinators were compacted."""
    compacted = 0
    for seed in range(first, first + count):
        try:
            compacted += run(seed).compacted_logs
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
    return compacted


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_classic_group_survives_its_members_and_its_coordinator(brokers: int) -> None:
    assert each_seed(2000, lambda seed: classic(seed, brokers=brokers), 3)


@pytest.mark.parametrize("run", [classic, consumer])
def test_a_group_on_three_combined_nodes_survives_changes_of_the_leader(run: Callable[..., Stage]) -> None:
    """Nodes, also that of the active controller, are killed, stopped and cut off; at the end each is registered and
    serves again, without help."""
    each_seed(2400, lambda seed: run(seed, brokers=3, quorum=QUORUMS[seed % 2]), 2)


def test_static_members_find_back_into_their_group_whenever_its_coordinator_moves() -> None:
    each_seed(2500, static, 1)


def test_a_classic_group_comes_back_after_the_power_went() -> None:
    assert each_seed(2100, lambda seed: classic(seed, power_loss=True), 2)


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_consumer_group_survives_its_members_and_its_coordinator(brokers: int) -> None:
    assert each_seed(2200, lambda seed: consumer(seed, brokers=brokers), 3)


def test_a_consumer_group_comes_back_after_the_power_went() -> None:
    assert each_seed(2300, lambda seed: consumer(seed, power_loss=True), 2)


@pytest.mark.long(amount="50 seeds")
@pytest.mark.parametrize("first", range(12_000, 12_200, 50))
@pytest.mark.parametrize("run", [classic, consumer])
def test_many_seeds_of_groups_on_a_quorum_of_three(run: Callable[..., Stage], first: int) -> None:
    each_seed(first, lambda seed: run(seed, brokers=3, quorum=QUORUMS[seed % 2]), 50)


@pytest.mark.long(amount="50 seeds")
@pytest.mark.parametrize("first", range(10_000, 10_500, 50))
@pytest.mark.parametrize("run", [classic, consumer])
@pytest.mark.parametrize("brokers", [1, 2])
def test_many_seeds_of_groups(brokers: int, run: Callable[..., Stage], first: int) -> None:
    each_seed(first, lambda seed: run(seed, brokers=brokers, power_loss=seed % 5 == 0), 50)


@pytest.mark.long(amount="50 seeds")
@pytest.mark.parametrize("first", range(14_000, 14_200, 50))
def test_many_seeds_of_static_members(first: int) -> None:
    each_seed(first, static, 25)
    each_seed(first + 25, lambda seed: static(seed, brokers=3, quorum=QUORUMS[seed % 2]), 25)
