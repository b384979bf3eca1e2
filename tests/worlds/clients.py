"""A producer of numbers and a member of a group, as applications of a world."""

from __future__ import annotations

import asyncio

import aiokafka

from pykbroker_worlds import World
from pykbroker_worlds.apps import Main

TOPIC = "orders"


def producing(world: World, count: int = 1_000, pause: float = 0.5) -> Main:
    """Send numbers, and record each one that was acknowledged. Another life goes on behind them."""

    async def main() -> None:
        servers = world.bootstrap_servers
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            for number in range(len(world.done("sent")), count):
                await producer.send_and_wait(TOPIC, str(number).encode())
                world.did("sent", number)
                await asyncio.sleep(pause)

    return main


def consuming(world: World, what: str = "seen", session_ms: int = 10_000) -> Main:
    """Record each number that a member of a group gets. `session_ms` is aiokafka's default."""

    async def main() -> None:
        async with aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=world.bootstrap_servers,
            group_id="group",
            auto_offset_reset="earliest",
            session_timeout_ms=session_ms,
        ) as consumer:
            async for record in consumer:
                world.did(what, int(record.value or b""))

    return main
