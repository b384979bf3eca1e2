"""Claims are judged at the end of a world, when everything is repaired and applications had their time."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from pykbroker_worlds import AtLeastOnce, ClaimFailed, Did, ExactlyOnce, NothingLost, OffsetsNotAhead, Records, World
from tests.worlds.clients import TOPIC, consuming, producing

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


@pytest.mark.parametrize("is_early", [False, True])
def test_offsets_in_a_transaction_are_judged_when_it_is_committed(is_early: bool) -> None:
    """The wrong service commits the offset in one transaction, and the bill in the next one."""
    world = World(17)
    world.must(OffsetsNotAhead(Records(TOPIC), Records("bills"), "billing"))
    servers = world.bootstrap_servers

    async def billing() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing") as producer,
            AIOKafkaConsumer(
                TOPIC,
                bootstrap_servers=servers,
                group_id="billing",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
        ):
            async for record in consumer:
                behind = {TopicPartition(record.topic, record.partition): record.offset + 1}
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction(behind, "billing")
                if record.offset == 0:  # these offsets are never committed
                    await producer.abort_transaction()
                    await producer.begin_transaction()
                    await producer.send_offsets_to_transaction(behind, "billing")
                if is_early:
                    await producer.commit_transaction()
                    await producer.begin_transaction()
                await asyncio.sleep(0.5)
                await producer.send_and_wait("bills", record.value)
                await producer.commit_transaction()
                world.did("billed", record.value)

    async def scenario() -> None:
        world.app("billing", billing)
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(3):
                await producer.send_and_wait(TOPIC, b"%d" % number)
        await world.until(lambda: len(world.done("billed")) == 3)

    if not is_early:
        world.run(scenario)
        return
    with pytest.raises(ClaimFailed, match="and records of bills comes later") as raised:
        world.run(scenario)
    story = str(raised.value)
    assert f"billing       adds {TOPIC}-0@1 of group billing to billing" in story
    assert f"committed {TOPIC}-0@3" in story


@pytest.mark.slow
def test_a_story_tells_of_new_leaders_once() -> None:
    world = World(18, brokers=3)
    world.must(AtLeastOnce(Records(TOPIC), Did("seen")), within="1s")

    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            await producer.send_and_wait(TOPIC, b"1")
        for number in (1, 2, 3):
            world.kill(number)
            await world.sleep("12s")
            await world.start(number)
            await world.become_whole()

    with pytest.raises(ClaimFailed) as raised:
        world.run(scenario)
    told = re.findall(rf" {TOPIC}-0 +(leader \d) in epoch (\d+), ISR \[", str(raised.value))
    epochs = [int(epoch) for _, epoch in told]
    assert epochs
    assert epochs == sorted(set(epochs))
