"""Three whole nodes with default sessions and timeouts: a process that dies is noticed by its sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykbroker.metadata.image import MetadataImage
from pykbroker_log.memory_disk import Survive
from tests.acting import acts
from tests.simulation.brokers import Quorum
from tests.simulation.sim_broker import SimBroker
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

DEFAULTS = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "9000"}


def on_three(scenario: Callable[[Stage], Awaitable[None]], seed: int = 1, **settings: str) -> None:
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    play(scenario, Stage(seed, 3, {**DEFAULTS, **overrides}, Quorum.STATIC))


async def seconds_until(stage: Stage, condition: Callable[[], bool]) -> float:
    began = stage.world.loop.time()
    while not condition():
        assert stage.world.loop.time() < began + 60
        await asyncio.sleep(0.005)
    return stage.world.loop.time() - began


def controller_of(stage: Stage) -> SimBroker:
    found = stage.cluster.leader()
    assert found is not None
    return found


async def seconds_without_controller(stage: Stage) -> float:
    await stage.cluster.become_whole()
    former = controller_of(stage)
    former.kill(Survive.EVERYTHING)

    def another_leads() -> bool:
        found = stage.cluster.leader()
        return found is not None and found is not former

    return await seconds_until(stage, another_leads)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_controller_that_dies_is_replaced_at_once(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        assert await seconds_without_controller(stage) < 0.5

    on_three(scenario, seed)


def is_fenced(seer: SimBroker, broker: SimBroker) -> bool:
    return seer.node.loader.image.brokers[broker.number].fenced


async def one_that_follows(stage: Stage) -> tuple[SimBroker, SimBroker]:
    """The active controller, and a broker that is not in its process, both of which have worked for a while."""
    await stage.cluster.become_whole()
    await asyncio.sleep(3)
    controller = controller_of(stage)
    return controller, next(each for each in stage.cluster.brokers.values() if each is not controller)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_that_dies_is_fenced_at_once_and_may_come_back_at_once(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        controller, broker = await one_that_follows(stage)
        broker.kill(Survive.EVERYTHING)
        assert await seconds_until(stage, lambda: is_fenced(controller, broker)) < 0.3
        began = stage.world.loop.time()
        await broker.start()
        await stage.cluster.become_whole()
        assert stage.world.loop.time() - began < 3

    on_three(scenario, seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_that_dies_with_the_controller_is_fenced_soon(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        former, other = await one_that_follows(stage)
        former.kill(Survive.EVERYTHING)
        assert await seconds_until(stage, lambda: is_fenced(other, former)) < 1.0

    on_three(scenario, seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_behind_an_address_that_refuses_is_fenced_once_at_most(seed: int) -> None:
    """Its connections are reset and new ones refused, again and again, and it lives all the time."""

    async def scenario(stage: Stage) -> None:
        network, rng = stage.world.network, stage.random
        controller, broker = await one_that_follows(stage)
        others = [each.machine for each in stage.cluster.brokers.values() if each is not broker]
        fences = 0
        was_fenced = False

        class Watch:
            def publish(self, delta: object, old: object, new: MetadataImage) -> None:
                nonlocal fences, was_fenced
                now_fenced = new.brokers[broker.number].fenced
                fences += now_fenced and not was_fenced
                was_fenced = now_fenced

        controller.node.loader.add_publisher(Watch())
        for _ in range(6):
            network.refuse(broker.machine)
            for other in others:
                network.reset(broker.machine, other)
            await asyncio.sleep(rng.uniform(0.05, 1.0))
            network.accept(broker.machine)
            await asyncio.sleep(rng.uniform(0.05, 3.0))
        await stage.cluster.become_whole()
        assert controller_of(stage) is controller
        assert fences == 1
        assert broker.starts == 1

    on_three(scenario, seed)


@acts(broker=("pykbroker.early.fencing.enable",))
def test_without_the_key_timeouts_decide() -> None:
    async def scenario(stage: Stage) -> None:
        # controller.quorum.fetch.timeout.ms
        assert await seconds_without_controller(stage) > 1.5

    on_three(scenario, pykbroker__early__fencing__enable="false")
