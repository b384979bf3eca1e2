"""These loads give the figures of worlds/README.md, how long worlds take. No test here fails because it is slow."""

from __future__ import annotations

import pytest

from pykbroker_worlds import World
from tests.worlds.clients import consuming, producing

#: more numbers than any of these worlds sends
ENOUGH = 10_000


@pytest.mark.long(amount="1,000 seeds of three nodes, a minute each")
@pytest.mark.timeout(7_200)
@pytest.mark.kafka_world(seeds=1_000, brokers=3)
async def test_a_minute_with_faults_of_brokers(kafka_world: World) -> None:
    kafka_world.app("producer", producing(kafka_world, ENOUGH), restart_after="1s")
    kafka_world.apps(2, consuming(kafka_world), "consumer", restart_after="1s")
    await kafka_world.disturb("50s")
    await kafka_world.sleep("9s")
    await kafka_world.until(lambda: set(kafka_world.done("sent")) <= set(kafka_world.done("seen")))


@pytest.mark.long(amount="an hour, 7,200 records")
@pytest.mark.kafka_world(seeds=1, brokers=1, limit="2 h")
async def test_an_hour(kafka_world: World) -> None:
    kafka_world.app("producer", producing(kafka_world, ENOUGH))
    kafka_world.apps(2, consuming(kafka_world), "consumer")
    await kafka_world.sleep("1 h")
    assert len(kafka_world.done("seen")) > 7_000


@pytest.mark.long(amount="100 seeds")
@pytest.mark.kafka_world(seeds=100, brokers=1)
async def test_a_session_of_45_seconds(kafka_world: World) -> None:
    world = kafka_world
    world.app("producer", producing(world, ENOUGH))
    one, other = (world.app(name, consuming(world, name, 45_000)) for name in ("a", "b"))
    await world.until(lambda: bool(world.done("a") or world.done("b")))
    owner, idle = (one, other) if world.done("a") else (other, one)
    owner.pause()
    began, before = world.seconds(), len(world.done(idle.name))
    await world.until(lambda: len(world.done(idle.name)) > before)
    assert 30 < world.seconds() - began < 60
