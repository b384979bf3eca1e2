"""Groups on whole nodes whose members die and whose coordinators crash; a failing seed is printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.groups import classic
from tests.simulation.stage import Stage

BLOCK = 10


def each_seed(first: int, run: Callable[[int], Stage], count: int = BLOCK) -> None:
    """Run a block of seeds; whatever fails says with which."""
    for seed in range(first, first + count):
        try:
            run(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 2030, BLOCK))
@pytest.mark.parametrize("brokers", [1, 2])
def test_a_classic_group_survives_its_members_and_its_coordinator(first: int, brokers: int) -> None:
    each_seed(first, lambda seed: classic(seed, brokers=brokers))


@pytest.mark.slow
def test_a_classic_group_comes_back_after_the_power_went() -> None:
    each_seed(2100, lambda seed: classic(seed, power_loss=True))
