"""Faults of applications: each kind comes and goes, and a seed draws all kinds."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from pykbroker_worlds import World
from pykbroker_worlds.faults.app_faults import AppFault, AppFaults, AppKind, draw_app_faults

# As in test_world.py, these tests do not run in the process of pytest.
pytestmark = pytest.mark.kafka_world(seeds=1)


@pytest.mark.parametrize("kind", list(AppKind))
def test_each_fault_of_an_application_comes_and_goes(kind: AppKind) -> None:
    world = World(6)
    ended: list[float] = []

    async def ticking() -> None:
        try:
            while True:
                async with world.store.transaction() as rows:
                    rows.did("tick")
                await asyncio.sleep(0.1)
        finally:
            ended.append(world.seconds())

    async def scenario() -> None:
        app = world.app("service", ticking, restart_after="1s")
        fault = AppFault(0, 1.0, kind, 0.0, 3.0, 1.0)
        faults = AppFaults(world.simulated, [fault], [app.process], ["machine 1"], world.store)
        network, began = world.simulated.network, world.seconds()
        running = asyncio.ensure_future(faults.run(8.0, asyncio.ensure_future))
        await world.sleep("2 s")
        assert network.are_apart("service", "machine 1") == (kind is AppKind.ISOLATE)
        assert (app.lives == 1) or kind is AppKind.STORE
        await running
        assert not network.are_apart("service", "machine 1")
        assert world.store.fail_share == 0
        assert app.is_alive
        assert (app.lives > 1) == (kind in (AppKind.KILL, AppKind.STOP, AppKind.STORE))
        ticks = [effect.seconds - began for effect in world.effects]
        gap = max(later - earlier for earlier, later in itertools.pairwise(ticks))
        assert (gap > 2.5) == (kind in (AppKind.KILL, AppKind.STOP, AppKind.PAUSE)), gap
        assert bool(ended) == (kind in (AppKind.STOP, AppKind.STORE)), "SIGKILL runs no finally"

    world.run(scenario)


def test_two_failures_of_the_store_at_once_end_with_the_later_one() -> None:
    world = World(7)
    shares: list[float] = []

    async def scenario() -> None:
        world.store.fail(0.01)
        drawn = [AppFault(0, 0.0, AppKind.STORE, 0.0, 2.0, 1.0), AppFault(1, 1.0, AppKind.STORE, 0.0, 3.0, 0.5)]
        faults = AppFaults(world.simulated, drawn, [], [], world.store)
        running = asyncio.ensure_future(faults.run(5.0, asyncio.ensure_future))
        for _ in range(5):
            await world.sleep("0.9 s")
            shares.append(round(world.store.fail_share, 2))
        await running

    world.run(scenario)
    assert shares == [0.52, 0.52, 0.27, 0.27, 0.01]


def test_what_a_seed_draws_has_every_kind_and_does_not_depend_on_what_happened() -> None:
    drawn = [draw_app_faults(random.Random(f"{seed}"), 30.0, 5) for seed in range(60)]
    assert {fault.kind for faults in drawn for fault in faults} == set(AppKind)
    assert all(faults[0].number == 5 and len(faults) <= 6 for faults in drawn)
    assert drawn[7] == draw_app_faults(random.Random("7"), 30.0, 5)
