"""Each planted bug is found by the ordinary run, and by a breach that makes sense for it.

`make test` tries the recorded seed and a few after it, because any change of the product may change the effect of a
seed. A seed that finds nothing must be recorded again. `make test-long` begins at seed 0, and allows 500. It also tries
the bugs of share groups with seeds that follow from the commit, so that no seed was ever chosen for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykbroker_worlds.history.checks import Violation
from tests.simulation.cluster_run import run_cluster
from tests.simulation.fresh_seeds import fresh_seeds
from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.planted import BUGS, Bug
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.planted_share_bugs import SHARE_BUGS

pytestmark = pytest.mark.slow

SEEDS_IN_SHORT = 12
SEEDS = 500
Run = Callable[..., Any]
RUNS: list[tuple[Bug, Run]] = [*((bug, run_cluster) for bug in BUGS), *((bug, run_shares) for bug in SHARE_BUGS)]
each_bug = pytest.mark.parametrize(("bug", "run"), RUNS, ids=[bug.name for bug, _ in RUNS])


def breaches(bug: Bug, run: Run, seed: int) -> set[str]:
    """Return the breaches of one run with the bug: ids of invariants, names of the history's checks."""
    try:
        run(seed, plant=bug.plant)
    except InvariantBroken as error:
        return {error.rule}
    except Violation as error:
        return {line.partition(":")[0] for line in str(error).splitlines()}
    except AssertionError:
        # For example, it did not come to rest in time: that is no proof.
        return set()
    return set()


def seeds_until_found(bug: Bug, run: Run, first: int, count: int) -> int:
    others: dict[int, set[str]] = {}
    for number, seed in enumerate(range(first, first + count), 1):
        found = breaches(bug, run, seed)
        if found & bug.found_by:
            return number
        if found:
            others[seed] = found
    raise AssertionError(f"{bug.name} was not found by {sorted(bug.found_by)} in {count} seeds from {first}: {others}")


@each_bug
def test_each_planted_bug_is_found(bug: Bug, run: Run) -> None:
    seeds_until_found(bug, run, bug.seed, SEEDS_IN_SHORT)


@pytest.mark.timeout(3600)
@pytest.mark.long(amount="up to 500 seeds")
@each_bug
def test_each_planted_bug_is_found_within_500_seeds(bug: Bug, run: Run) -> None:
    seeds_until_found(bug, run, 0, SEEDS)


@pytest.mark.timeout(3600)
@pytest.mark.long(amount="up to 500 seeds")
@pytest.mark.parametrize("bug", SHARE_BUGS, ids=[bug.name for bug in SHARE_BUGS])
def test_each_bug_of_share_groups_is_found_with_seeds_of_the_commit(bug: Bug) -> None:
    seeds_until_found(bug, run_shares, fresh_seeds(0, SEEDS)[0], SEEDS)
