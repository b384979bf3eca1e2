"""Claims are judged at the end of a world, when everything is repaired and applications had their time."""

from __future__ import annotations

import asyncio

import pytest

from pykbroker_worlds import AtLeastOnce, ClaimFailed, Did, ExactlyOnce, NothingLost, Records, World
from tests.worlds.test_world import TOPIC, consuming, producing

# As in test_world.py, these tests do not run in the process of pytest.
pytestmark = pytest.mark.kafka_world(seeds=1)


@pytest.mark.slow
@pytest.mark.kafka_world(seeds=3, brokers=3)
def test_claims_hold_right_after_faults_of_brokers(kafka_world: World) -> None:
    """A new leader's high watermark and its log come some time after its registration."""
    world = kafka_world
    orders = Records(TOPIC, lambda record: int(record.value or b""))
    world.must(NothingLost(Did("sent"), orders), ExactlyOnce(Did("sent"), orders), AtLeastOnce(orders, Did("seen")))

    async def scenario() -> None:
        world.app("producer", producing(world, pause=0.1))
        world.app("consumer", consuming(world))
        await world.until(lambda: bool(world.done("seen")))
        await world.disturb("15s")

    world.run(scenario)


@pytest.mark.slow
def test_brokers_that_are_all_down_come_back_for_the_claims() -> None:
    world = World(9, brokers=3)
    world.must(AtLeastOnce(Did("asked"), Did("asked")))

    async def scenario() -> None:
        for number in (1, 2, 3):
            world.kill(number)
        world.did("asked", 1)

    world.run(scenario)


def test_applications_that_go_on_have_time_for_what_was_there_at_the_end() -> None:
    world = World(15)
    world.must(AtLeastOnce(Did("asked"), Did("answered")))

    async def service() -> None:
        number = 0
        while True:
            world.did("asked", number)
            await asyncio.sleep(30)
            world.did("answered", number)
            number += 1

    async def scenario() -> None:
        world.app("service", service)
        await world.sleep("10 min")

    world.run(scenario)


def test_a_claim_that_does_not_hold_ends_the_run_with_its_story() -> None:
    world = World(16)
    world.must(AtLeastOnce(Did("asked"), Did("answered")), within="20s")

    async def service() -> None:
        world.did("asked", 7)
        await asyncio.sleep(3_600)

    async def scenario() -> None:
        world.app("service", service)
        await world.sleep("1 min")

    with pytest.raises(ClaimFailed, match="answered: 7 is missing") as raised:
        world.run(scenario)
    assert "service asked 7" in str(raised.value)
    assert 80 < world.seconds() < 180
