"""`make sim SEED=7`: run one seed and print its story.

`python -m tests.simulation.cluster_run 7 [--without 0,2]`: `--without` leaves faults of the plan out, to find the
relevant ones. `--shares` runs the seed with share groups (tests/simulation/share_run).
"""

from __future__ import annotations

import argparse
import os
import sys

from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.cluster_run import run_cluster
from tests.simulation.cluster_run.log_watch import LogWatch
from tests.simulation.cluster_run.plan import plan_of
from tests.simulation.share_run import run_shares
from tests.simulation.share_run.share_plan import share_plan_of


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description="Run one seed of the cluster and tell its story.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--without", default="", help="numbers of faults that are left out, as 0,2")
    parser.add_argument("--brief", action="store_true", help="without what the nodes log")
    parser.add_argument("--shares", action="store_true", help="with share groups")
    chosen = parser.parse_args(arguments)
    without = [int(number) for number in chosen.without.split(",") if number]
    LogWatch.tells = not chosen.brief
    worlds: list[SimWorld] = []
    run, plan = (run_shares, share_plan_of) if chosen.shares else (run_cluster, plan_of)
    print("\n".join(plan(chosen.seed).describe()))
    failure: BaseException | None = None
    try:
        run(chosen.seed, without=without, prepare=worlds.append)
    except Exception as error:  # noqa: BLE001  # printed after the story
        failure = error
    for when, part, text in worlds[0].story:
        print(f"{when:9.3f}  {part:16}  {text}")
    if failure is not None:
        print(f"\nBROKEN: {type(failure).__name__}: {failure}")
        return 1
    print(f"\nEverything held: trace {worlds[0].trace.digest()[:16]} of {worlds[0].trace.events} events")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os._exit(0)
