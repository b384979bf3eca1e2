"""Whole nodes on a virtual clock, through crashes of the process and power losses. The parameter of a failing test is
its seed."""

from __future__ import annotations

import pytest

from tests.simulation.scenario import simulate
from tests.simulation.traces import printed_twice

#: seeds per test: enough to be worth the overhead of a test, few enough to find a seed
BLOCK = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, BLOCK))
def test_nothing_acknowledged_is_lost_when_the_process_dies(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate(seed, power_loss=False)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1100, BLOCK))
def test_what_remains_is_legal_when_the_power_goes(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate(seed, power_loss=True)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2020, 2050, BLOCK))
def test_nothing_acknowledged_or_read_is_lost_with_the_power_where_everything_is_flushed(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            simulate(seed, power_loss=True, flushed=True)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_seed_gives_the_same_trace_in_two_processes(power_loss: bool) -> None:
    program = (
        f"from tests.simulation.scenario import simulate; w = simulate(7, power_loss={power_loss}); "
        "print(w.trace.digest(), w.trace.events)"
    )
    found = printed_twice(program)
    assert found[0] == found[1]
    assert int(found[0].split()[1]) > 100
