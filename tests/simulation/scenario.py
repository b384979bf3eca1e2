"""One run: a node, clients, crashes at random moments, and the checks at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from pykbroker.storage import recovery
from pykbroker_log.memory_disk import Survive
from pykbroker_worlds.simulated.sim_node import SimNode
from pykbroker_worlds.simulated.world import SimWorld
from testkit.simulated_clients import Committer, Consumer, Producer

TOPIC = "orders"
SIMULATED_SECONDS = 600.0
#: small, so that a run rolls segments and crosses index entries
OVERRIDES = {"log.roll.ms": "700", "log.index.interval.bytes": "128", "offsets.topic.num.partitions": "2"}


#: also, every append is flushed before it is acknowledged or read, those of coordinators too
FLUSHED = {**OVERRIDES, "log.flush.interval.messages": "1"}


def simulate(seed: int, *, power_loss: bool, flushed: bool = False) -> SimWorld:
    """Run one seed to its end; raises AssertionError if a check fails."""
    world = SimWorld(seed)
    asyncio.set_event_loop(None)
    loop = world.loop
    # Every second seed recovers in workers the logs that are otherwise recovered in a turn of the loop.
    small_bytes = -1 if seed % 2 else recovery.SMALL_BYTES
    try:
        with mock.patch.object(recovery, "SMALL_BYTES", small_bytes):
            loop.run_until_complete(asyncio.wait_for(_scenario(world, power_loss, flushed), SIMULATED_SECONDS))
    finally:
        world.end()
    return world


async def _scenario(world: SimWorld, power_loss: bool, flushed: bool) -> None:
    rng = world.random
    node = SimNode(world, FLUSHED if flushed else OVERRIDES)
    await node.start()
    producers = [Producer(world, f"p{number}", TOPIC, number % 2) for number in range(2)]
    consumers = [Consumer(world, f"c{number}", TOPIC, number) for number in range(2)]
    committer = Committer(world, "g", TOPIC)
    await producers[0].create_topic(TOPIC, 2)
    created = [TOPIC]

    async def create_more() -> None:
        for number in range(3):
            await asyncio.sleep(rng.uniform(0, 2))
            name = f"more-{number}"
            await committer.create_topic(name, rng.randint(1, 3))
            created.append(name)

    async def consume(consumer: Consumer) -> None:
        while True:
            await consumer.poll()

    async def crash() -> None:
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(rng.uniform(0.01, 2.0))
            if rng.random() < 0.15:
                await node.stop()
            elif power_loss:
                node.kill(rng.choice([Survive.NOTHING, Survive.CHOSEN, Survive.EVERYTHING]))
            else:
                node.kill(Survive.EVERYTHING)
            await asyncio.sleep(rng.uniform(0, 0.3))
            await node.start()

    readers = [asyncio.ensure_future(consume(consumer)) for consumer in consumers]
    work: list[Coroutine[Any, Any, None]] = [producer.run(30) for producer in producers]
    await asyncio.gather(*work, committer.run(20), create_more(), crash())
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await _check(node, producers, consumers, committer, created, power_loss and not flushed)
    await node.stop()


async def _check(
    node: SimNode,
    producers: list[Producer],
    consumers: list[Consumer],
    committer: Committer,
    created: list[str],
    may_lose: bool,
) -> None:
    # The metadata log is fsynced before a topic is acknowledged, so no crash may remove it.
    assert set(created) <= set(await committer.topics())
    for producer, consumer in zip(producers, consumers, strict=True):
        earlier = dict(consumer.seen)
        await consumer.read_everything()
        values = list(consumer.seen.values())
        if not may_lose:
            # P1, T1, P8: written records survive the process, once each, at the acknowledged offset; reads can be
            # repeated.
            for offset, value in producer.acknowledged.items():
                assert consumer.seen.get(offset) == value, (producer.name, offset, value, consumer.seen.get(offset))
            assert len(set(values)) == len(values) == producer.sent
            for offset, value in earlier.items():
                assert consumer.seen[offset] == value
            assert producer.restarts == 0
        else:
            # L1: a legal prefix of what was sent. Only a producer whose state a power loss removed may repeat a batch.
            assert set(values) <= {f"{producer.name}-{number}".encode() for number in range(producer.sent)}
    fetched = await committer.fetched()
    if not may_lose:
        # G3
        assert committer.committed <= fetched <= committer.attempted
    else:
        assert fetched <= committer.attempted
    assert node.disk is not None
