"""A run of the whole cluster with share groups: that of cluster_run/, with members of share groups and their rules.

It is a run of its own, so that the seeds of the usual run go on showing what they were recorded for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial

from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.cluster_run import Outcome, run_cluster
from tests.simulation.invariants.share_groups import ShareInvariants
from tests.simulation.share_run.share_plan import SharePlan, share_plan_of
from tests.simulation.share_run.share_watch import watching_shares
from tests.simulation.share_run.share_workload import ShareWorkload


def run_shares(
    seed: int,
    *,
    plant: Callable[[], AbstractContextManager[object]] | None = None,
    without: Collection[int] = (),
    plan: SharePlan | None = None,
    prepare: Callable[[SimWorld], None] | None = None,
) -> Outcome:
    """Run one seed to its end, as `run_cluster` does. Raises AssertionError if a check fails. `make sim SEED=7
    SIM_ARGS=--shares` tells what happens."""
    share_plan = plan or share_plan_of(seed)
    invariants = ShareInvariants()
    return run_cluster(
        seed,
        watch=partial(watching_shares, invariants=invariants),
        plant=plant,
        without=without,
        plan=share_plan.plan,
        prepare=prepare,
        workload=lambda _, stage: ShareWorkload(share_plan, stage, invariants),
    )
