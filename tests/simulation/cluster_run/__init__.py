"""A run of the whole cluster: nodes, clients, faults and checks, all from one seed.

A run has a safety phase, in which faults happen while clients work (plan.py, faults.py, workload.py). Then faults end,
for all nodes or for all but one, and within a minute of simulated time every goal of rest.py must be reached. Finally
the history is checked (history/).

The contract with a watcher of a run:

* `run_cluster(seed, watch=…)` enters `watch(cluster, history)` once, before any node has started, and leaves it when
  the run is over; by default that is `invariants.watcher.watching`. The watcher appends its checks to
  `cluster.world.after_event`: each is called after every callback that ran, and ends the run by raising an
  AssertionError (`history.checks.Violation` is one).
* `cluster.nodes[n]` (and `brokers[n]`, for those with a broker half) is the same object for the whole run. Its `node`
  is another object after each start (`starts` counts them). The node may be killed (`is_alive` is False then), paused
  (`runs` is False), or in the middle of its start.
* `Watcher.at_rest()` is called once, when all faults are over and the cluster is at rest, before it is stopped.
* `plant()` is a context manager that plants a bug. It is entered before the first node is made and left when the run is
  over.
* `world.tell(part, text)` adds a line to the story that a failed run prints.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from pykbroker_worlds.faults.faults import CLIENTS, Faults
from pykbroker_worlds.history.checks import insist
from pykbroker_worlds.history.events import History
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from pykbroker_worlds.simulated.world import SimWorld
from tests.simulation.cluster_run import rest
from tests.simulation.cluster_run.chronicle import Chronicle
from tests.simulation.cluster_run.log_watch import LogWatch
from tests.simulation.cluster_run.plan import Plan, plan_of
from tests.simulation.cluster_run.workload import TOPIC, Workload
from tests.simulation.invariants.watcher import watching
from tests.simulation.stage import Stage

SIMULATED_SECONDS = 400.0
REST_SECONDS = 60.0


class Watcher(Protocol):
    """Checks every event of a run."""

    def at_rest(self) -> None:
        """Check what must hold at the end. Raises AssertionError."""


@dataclass(slots=True, frozen=True)
class Outcome:
    """The result of a run without a violation."""

    seed: int
    #: the digest of what clients and faults did; the same for the same seed
    digest: str
    events: int
    simulated_seconds: float
    story: list[tuple[float, str, str]]


def run_cluster(
    seed: int,
    *,
    watch: Callable[[SimCluster, History], AbstractContextManager[Watcher]] = watching,
    plant: Callable[[], AbstractContextManager[object]] | None = None,
    without: Collection[int] = (),
    plan: Plan | None = None,
    prepare: Callable[[SimWorld], None] | None = None,
    workload: Callable[[Plan, Stage], Workload] = Workload,
) -> Outcome:
    """Run one seed to its end. Raises AssertionError if a check fails; its notes contain the end of the story.

    `without` are the numbers of faults that are left out. `plan` replaces the seed's plan. `prepare` is called with the
    world. `workload` makes the clients.
    """
    plan = plan or plan_of(seed)
    if without:
        plan = replace(plan, faults=[fault for fault in plan.faults if fault.number not in without])
    with plant() if plant is not None else nullcontext(), _without_garbage_collection():
        stage = Stage(seed, 0, plan.overrides, plan.quorum, plan.layout, make_node=SimBroker)
        world = stage.world
        if prepare is not None:
            prepare(world)
        try:
            with watch(stage.cluster, stage.history) as watcher:
                _play(plan, stage, watcher, workload)
        except BaseException as error:
            error.add_note(_explanation(plan, world))
            raise
        return Outcome(seed, world.trace.digest(), world.trace.events, world.loop.time(), world.story)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect the garbage of a run once, at its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _explanation(plan: Plan, world: SimWorld) -> str:
    lines = [f"make sim SEED={plan.seed}{plan.sim_args}", *plan.describe()]
    lines += [f"{when:9.3f}  {part:8}  {text}" for when, part, text in world.story[-40:]]
    return "\n".join(lines)


def _play(plan: Plan, stage: Stage, watcher: Watcher, make_workload: Callable[[Plan, Stage], Workload]) -> None:
    asyncio.set_event_loop(None)
    world = stage.world

    async def run() -> None:
        await stage.cluster.start()
        await _scenario(plan, stage, make_workload(plan, stage))
        watcher.at_rest()
        logs.check()

    with LogWatch(world) as logs:
        try:
            world.loop.run_until_complete(asyncio.wait_for(run(), SIMULATED_SECONDS))
        finally:
            logs.be_deaf()
            world.end()


async def _scenario(plan: Plan, stage: Stage, workload: Workload) -> None:
    cluster, world = stage.cluster, stage.world
    cluster.client_machine = CLIENTS
    await cluster.become_whole()
    faults = Faults(plan.faults, cluster, TOPIC, seconds=plan.seconds, flushes=plan.flushes)
    await workload.prepare()
    stage.in_background(Chronicle(cluster, stage.history).forever())
    world.tell("phase", "clients and faults")

    async def safety() -> None:
        await faults.run(stage.in_background)
        await _heal(plan, cluster, faults, without)
        workload.end()
        await _answered(cluster, workload)

    without: set[int] = set()
    await stage.together(safety(), workload.run())
    world.tell("rest", "every client has its answers")
    # From here on everything depends on time, not on faults.
    await rest.wait_for(cluster, "every node is a member", lambda: rest.members(cluster, without), REST_SECONDS)
    await rest.wait_for(cluster, "every partition is led", lambda: rest.partitions(cluster, without), REST_SECONDS)
    await rest.wait_for(
        cluster,
        "groups are stable",
        lambda: None if workload.groups_are_stable() else workload.describe_groups(),
        REST_SECONDS,
    )
    await stage.hush()
    await rest.wait_for(cluster, "replicas are equal", lambda: rest.replicas(cluster, without), REST_SECONDS)
    rest.check_equal(cluster, without)
    stage.agree()
    await workload.check()
    world.tell("rest", "the history holds")


async def _answered(cluster: SimCluster, workload: Workload) -> None:
    """Wait until every client has its responses, now that faults are over. No transaction times out later than that."""
    try:
        async with asyncio.timeout(REST_SECONDS):
            await workload.ended.wait()
    except TimeoutError:
        insist(rest.nothing_hangs(cluster))
        raise rest.NotAtRest(f"clients wait for answers, {REST_SECONDS:g} s after the faults") from None


async def _heal(plan: Plan, cluster: SimCluster, faults: Faults, without: set[int]) -> None:
    """End the faults. If a node stays dead, its number is added to `without`."""
    world = cluster.world
    world.tell("phase", "faults end")
    dead = _dead(plan, cluster) if plan.leaves_one_dead else None
    await faults.heal(keep_dead=dead)
    if dead is None:
        return
    await rest.wait_for(cluster, "the others are members", lambda: rest.members(cluster, {dead.number}), REST_SECONDS)
    if (only := rest.only_dead_has(cluster, dead)) is not None:
        world.tell(f"node {dead.number}", f"comes back: no other broker can lead {only}")
        await dead.start()
    else:
        without.add(dead.number)


def _dead(plan: Plan, cluster: SimCluster) -> SimBroker | None:
    """Return a node that is down now and without which there is a majority of voters, or None."""
    down = [node for node in cluster.nodes.values() if not node.is_alive]
    if not down or 2 * (len(cluster.voters) - 1) <= len(cluster.voters):
        return None
    return down[0]
