"""Three whole nodes with default sessions and timeouts: the sockets of a dead process reveal its death."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykbroker.metadata.image import MetadataImage
from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.simulated.network import Delay, both_ways
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import Quorum
from testkit.acting import acts
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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_controller_that_dies_is_replaced_at_once(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        assert await seconds_without_controller(stage) < 0.5

    on_three(scenario, seed)


def is_fenced(seer: SimBroker, broker: SimBroker) -> bool:
    return seer.node.loader.image.brokers[broker.number].fenced


async def one_that_follows(stage: Stage) -> tuple[SimBroker, SimBroker]:
    """Return the active controller and a broker in another process, after both have worked for a while."""
    await stage.cluster.become_whole()
    await asyncio.sleep(3)
    controller = controller_of(stage)
    return controller, next(each for each in stage.cluster.brokers.values() if each is not controller)


@pytest.mark.parametrize("seed", [1, 2])
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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_broker_that_dies_with_the_controller_is_fenced_soon(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        former, other = await one_that_follows(stage)
        former.kill(Survive.EVERYTHING)
        assert await seconds_until(stage, lambda: is_fenced(other, former)) < 1.0

    on_three(scenario, seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_behind_an_address_that_refuses_is_fenced_once_at_most(seed: int) -> None:
    """Its connections are reset and new ones refused, again and again, while it lives."""

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


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("leads", [False, True])
def test_a_container_that_is_killed_is_fenced_soon(seed: int, leads: bool) -> None:
    """Its kernel ends its connections, and then its address is gone: packets to it are neither accepted nor refused."""

    async def scenario(stage: Stage) -> None:
        controller, other = await one_that_follows(stage)
        killed, seer = (controller, other) if leads else (other, controller)
        killed.kill(Survive.EVERYTHING)
        # For a moment its address exists and refuses: only a connection at once is refused, a later one is not.
        await asyncio.sleep(0.02 if leads else 0)
        stage.world.network.silence(
            both_ways([killed.machine], [each.machine for each in stage.cluster.brokers.values() if each is not killed])
        )
        assert await seconds_until(stage, lambda: is_fenced(seer, killed)) < (1.5 if leads else 1.0)

    on_three(scenario, seed)


class Fences:
    """Counts how often one node sees a broker become fenced."""

    def __init__(self, broker: SimBroker) -> None:
        self.number = broker.number
        self.count = 0
        self._was_fenced = False

    def publish(self, delta: object, old: object, new: MetadataImage) -> None:
        is_fenced = new.brokers[self.number].fenced
        self.count += is_fenced and not self._was_fenced
        self._was_fenced = is_fenced


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_a_broker_whose_connections_the_network_cuts_and_that_comes_back_is_not_fenced(seed: int) -> None:
    """Like an address translation that loses its connections, on a slow network."""

    async def scenario(stage: Stage) -> None:
        network, rng = stage.world.network, stage.random
        controller, broker = await one_that_follows(stage)
        machines = [each.machine for each in stage.cluster.brokers.values()]
        network.slow(both_ways(machines, machines), Delay(0.001, 0.05, 0.02))
        fences = Fences(broker)
        controller.node.loader.add_publisher(fences)
        for _ in range(8):
            network.reset(broker.machine, controller.machine)
            await asyncio.sleep(rng.uniform(0.1, 3.0))
        await asyncio.sleep(2)
        assert fences.count == 0

    on_three(scenario, seed)


@pytest.mark.parametrize("way", ["to the broker", "from the broker"])
def test_a_broker_that_is_only_silent_keeps_its_session(way: str) -> None:
    """One direction is cut for a while, and no connection ends."""

    async def scenario(stage: Stage) -> None:
        controller, broker = await one_that_follows(stage)
        ways = [(controller.machine, broker.machine)]
        if way == "from the broker":
            ways = [(broker.machine, controller.machine)]
        fences = Fences(broker)
        controller.node.loader.add_publisher(fences)
        stage.world.network.silence(ways)
        await asyncio.sleep(1)
        stage.world.network.restore(ways)
        await asyncio.sleep(3)
        assert fences.count == 0

    on_three(scenario)


@pytest.mark.parametrize("seed", range(2))
def test_a_controller_that_stood_still_for_five_seconds_fences_no_living_broker(seed: int) -> None:
    """Its brokers gave up their connections in the meantime; their new ones are in what it has not read yet."""

    async def scenario(stage: Stage) -> None:
        controller, broker = await one_that_follows(stage)
        others = [each for each in stage.cluster.brokers.values() if each is not controller]
        fences = [Fences(each) for each in others]
        for watch in fences:
            broker.node.loader.add_publisher(watch)
        controller.runtime.pause()
        await asyncio.sleep(5)
        controller.runtime.resume()
        await asyncio.sleep(5)
        assert [watch.count for watch in fences] == [0, 0]

    on_three(scenario, seed)


@acts(broker=("pykbroker.early.fencing.enable",))
def test_without_the_key_timeouts_decide() -> None:
    async def scenario(stage: Stage) -> None:
        # controller.quorum.fetch.timeout.ms
        assert await seconds_without_controller(stage) > 1.5

    on_three(scenario, pykbroker__early__fencing__enable="false")
