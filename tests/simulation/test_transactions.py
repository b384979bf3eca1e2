"""Transactions on whole nodes through crashes, zombies, lost and late requests and full disks; a failing seed is
printed."""

from __future__ import annotations

import pytest

from tests.simulation.test_groups import each_seed
from tests.simulation.transactions import run_producers

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_whole_and_read_as_such(version: int, brokers: int) -> None:
    first = 3000 + 200 * version + 100 * brokers
    each_seed(first, lambda seed: run_producers(seed, version=version, brokers=brokers), 25)


def test_transactions_end_when_disks_were_full() -> None:
    # Seed 27: the completion of a transaction met a full disk, and was given up.
    each_seed(20, lambda seed: run_producers(seed, full=True), 15)


def test_transactions_end_after_the_power_went() -> None:
    each_seed(3800, lambda seed: run_producers(seed, power_loss=True), 25)
