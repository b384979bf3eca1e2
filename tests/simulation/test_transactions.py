"""Transactions on whole nodes through crashes, zombies, lost and late requests and full disks; a failing seed is
printed."""

from __future__ import annotations

import pytest

from tests.simulation.planted import requests_overtake_one_that_waits_for_a_coordinator
from tests.simulation.test_groups import QUORUMS, each_seed
from tests.simulation.traces import printed_twice
from tests.simulation.transactions import run_duel, run_producers, run_together, run_transform

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_whole_and_read_as_such(version: int, brokers: int) -> None:
    first = 3000 + 200 * version + 100 * brokers
    assert each_seed(first, lambda seed: run_producers(seed, version=version, brokers=brokers), 3)


@pytest.mark.parametrize("version", [1, 2])
def test_applications_that_fence_each_other_all_the_time(version: int) -> None:
    each_seed(3700, lambda seed: run_duel(seed, version=version), 1)


def test_transactions_end_when_disks_were_full() -> None:
    # Seed 27: the completion of a transaction found a full disk, and was given up.
    each_seed(26, lambda seed: run_producers(seed, full=True), 2)


def test_transactions_end_after_the_power_went() -> None:
    assert each_seed(3800, lambda seed: run_producers(seed, power_loss=True), 3)


@pytest.mark.parametrize("version", [1, 2])
def test_a_loop_that_is_killed_and_doubled_writes_each_input_once(version: int) -> None:
    each_seed(3900, lambda seed: run_transform(seed, version=version, brokers=1 + seed % 2), 2)


def test_transactions_on_three_combined_nodes_survive_changes_of_the_leader() -> None:
    """The coordinators of producers, groups and partitions are on different nodes."""
    each_seed(4000, lambda seed: run_producers(seed, brokers=3, quorum=QUORUMS[seed % 2]), 2)
    each_seed(4020, lambda seed: run_transform(seed, brokers=3, quorum=QUORUMS[seed % 2]), 2)


def test_batches_that_are_sent_together_are_appended_in_their_order() -> None:
    each_seed(4100, run_together, 1)


def test_a_broker_that_lets_them_overtake_each_other_is_found() -> None:
    with requests_overtake_one_that_waits_for_a_coordinator(), pytest.raises(AssertionError):
        each_seed(4100, run_together, 1)


def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    program = (
        "from tests.simulation.transactions import run_transform\n"
        "from tests.simulation.groups import consumer\n"
        "from pykbroker_worlds.simulated.sim_cluster import Quorum\n"
        "for stage in (\n"
        "    consumer(5, brokers=2), run_transform(6, brokers=3, quorum=Quorum.STATIC),\n"
        "):\n"
        "    print(stage.world.trace.digest(), stage.world.trace.events)\n"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert all(int(line.split()[1]) > 100 for line in found[0].splitlines())


@pytest.mark.long(amount="50 seeds, 25 transforms")
@pytest.mark.parametrize("first", range(24_000, 24_200, 50))
def test_many_seeds_of_transactions_on_a_quorum_of_three(first: int) -> None:
    each_seed(first, lambda seed: run_producers(seed, brokers=3, quorum=QUORUMS[seed % 2]), 50)
    each_seed(first, lambda seed: run_transform(seed, brokers=3, quorum=QUORUMS[seed % 2]), 25)


@pytest.mark.long(amount="50 seeds, 25 transforms, 10 duels")
@pytest.mark.parametrize("first", range(20_000, 21_000, 50))
def test_many_seeds_of_transactions(first: int) -> None:
    each_seed(
        first,
        lambda seed: run_producers(
            seed, version=1 + seed % 2, brokers=1 + seed // 2 % 2, full=seed % 7 == 0, power_loss=seed % 11 == 0
        ),
        50,
    )
    each_seed(first, lambda seed: run_transform(seed, version=1 + seed % 2, brokers=1 + seed // 2 % 2), 25)
    each_seed(first, lambda seed: run_duel(seed, version=1 + seed % 2), 10)
