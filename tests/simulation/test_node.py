"""Whole nodes on a virtual clock, through crashes of the process and power losses. The parameter of a failing test is
its seed."""

from __future__ import annotations

import pytest

from tests.simulation.scenario import simulate
from tests.simulation.traces import printed_twice

#: seeds per test: enough to be worth the overhead of a test, few enough to find a seed
BLOCK = 10


def each_seed(first: int, *, power_loss: bool, flushed: bool = False) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate(seed, power_loss=power_loss, flushed=flushed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 30, BLOCK))
def test_nothing_acknowledged_is_lost_when_the_process_dies(first: int) -> None:
    each_seed(first, power_loss=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1030, BLOCK))
def test_what_remains_is_legal_when_the_power_goes(first: int) -> None:
    each_seed(first, power_loss=True)


@pytest.mark.slow
def test_nothing_acknowledged_or_read_is_lost_with_the_power_where_everything_is_flushed() -> None:
    each_seed(2020, power_loss=True, flushed=True)


@pytest.mark.long(amount="30 seeds")
@pytest.mark.parametrize("first", range(10_000, 10_100, BLOCK))
def test_many_seeds_of_a_node(first: int) -> None:
    each_seed(first, power_loss=False)
    each_seed(first, power_loss=True)
    each_seed(first, power_loss=True, flushed=True)


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_two_processes() -> None:
    program = (
        "from tests.simulation.scenario import simulate\n"
        "for power_loss in (False, True):\n"
        "    world = simulate(7, power_loss=power_loss)\n"
        "    print(world.trace.digest(), world.trace.events)\n"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert all(int(line.split()[1]) > 100 for line in found[0].splitlines())
