"""The search for a planted bug with random events: it ends with the first run that breaks a rule.

A seed makes the same runs, whichever modules are loaded. So a test keeps a seed that finds its bug early, and the
search begins there. After a change of the product or of the events a later seed may find it, and the test takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

#: Another number makes other runs of each seed.
RUNS_OF_A_SEED: Final = 60
MOST_SEEDS: Final = 80


def search(events: type[RuleBasedStateMachine], *, seed: int, steps: int) -> None:
    """Raise what the first run that breaks a rule raises, or return if there is none."""
    settings = hypothesis.settings(
        max_examples=RUNS_OF_A_SEED,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        # The run that shows it need not be the shortest.
        phases=[Phase.generate],
        report_multiple_bugs=False,
        print_blob=False,
    )
    with _constants_of_no_module():
        for each in range(seed, seed + MOST_SEEDS):
            # The seed becomes an attribute of the class.
            seeded = hypothesis.seed(each)(type(events.__name__, (events,), {}))
            run_state_machine_as_test(seeded, settings=settings)


@contextmanager
def _constants_of_no_module() -> Iterator[None]:
    """Hypothesis also draws constants from the sources of the modules that are loaded. Here it takes none of them."""
    none = Constants()
    with mock.patch.multiple(providers, _get_local_constants=lambda: none, CONSTANTS_CACHE={}):
        yield
