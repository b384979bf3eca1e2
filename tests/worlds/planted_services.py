"""Twelve short services as people write them, each with a well-known bug, and the same service without it.

`play` runs a service in a world, with its bug if it is `broken`. A seed finds the bug of each.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from pykbroker_worlds import (
    AnyOf,
    AtLeastOnce,
    Did,
    ExactlyOnce,
    NothingLost,
    NoZombieWrites,
    OffsetsNotAhead,
    Records,
    StoredRecord,
    World,
)
from pykbroker_worlds.checking.claims import Claim

Main = Callable[[], Coroutine[Any, Any, None]]
ORDERS, COUNT = "orders", 40


def number(record: StoredRecord) -> int:
    return int(record.value or b"-1")


PLACED = Records(ORDERS, number)


@dataclass(frozen=True)
class Service:
    """A service with its claims. `seed` is the first that finds its bug, and `kind` what is wrong then. `brokers`: how
    many a world of it has."""

    name: str
    seed: int
    kind: str
    claims: Sequence[Claim]
    play: Callable[[World, bool], Coroutine[Any, Any, None]]
    brokers: int = 1

    def world(self, seed: int) -> World:
        world = World(seed, self.brokers, {"num.partitions": "4"})
        world.must(*self.claims)
        return world


# -- what several services need ---------------------------------------------------------------------------------------


def ordering(world: World, count: int = COUNT, pause: float = 0.4) -> Main:
    """Place orders, each once, whatever happens."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, enable_idempotence=True) as producer:
            for order in range(count):
                while True:
                    try:
                        await producer.send_and_wait(ORDERS, b"%d" % order, key=b"%d" % (order % 5))
                        break
                    except KafkaError:
                        await asyncio.sleep(1)
                world.did("ordered", order)
                await asyncio.sleep(pause)

    return main


@contextlib.asynccontextmanager
async def consumer_of(world: World, *topics: str, group: str = "billing", listener: Any = None, **settings: Any) -> Any:
    values = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    consumer = AIOKafkaConsumer(bootstrap_servers=world.bootstrap_servers, group_id=group, **values)
    consumer.subscribe(list(topics), listener=listener)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def commit(consumer: AIOKafkaConsumer, record: ConsumerRecord, partition: int | None = None) -> None:
    """Commit the offset after a record. The next commit makes good one that fails."""
    place = TopicPartition(record.topic, record.partition if partition is None else partition)
    with contextlib.suppress(KafkaError):
        await consumer.commit({place: record.offset + 1})


def order_of(record: ConsumerRecord) -> int:
    return int(record.value or b"-1")


async def two_members(world: World, main: Main, *, brokers: bool = False) -> None:
    world.app("shop", ordering(world))
    world.apps(2, main, "billing", restart_after="1s")
    await world.sleep("6s")
    await world.disturb("20s", brokers=brokers, apps=True)


# -- the services -----------------------------------------------------------------------------------------------------


async def _commit_before_work(world: World, broken: bool) -> None:
    async def main() -> None:
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                if broken:
                    await commit(consumer, record)
                await asyncio.sleep(0.1)
                world.did("billed", order_of(record))
                if not broken:
                    await commit(consumer, record)

    await two_members(world, main)


class _Buffer(ConsumerRebalanceListener):  # type: ignore[misc]
    """Bills several records at once, and commits after them."""

    def __init__(self, world: World, *, flushes_on_revoke: bool) -> None:
        self._world = world
        self._flushes_on_revoke = flushes_on_revoke
        self._records: list[ConsumerRecord] = []
        self.consumer: AIOKafkaConsumer | None = None

    async def add(self, record: ConsumerRecord) -> None:
        self._records.append(record)
        if len(self._records) == 8:
            await self.flush()

    async def flush(self) -> None:
        records, self._records = self._records, []
        for record in records:
            self._world.did("billed", order_of(record))
        for record in records:
            assert self.consumer is not None
            await commit(self.consumer, record)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if self._flushes_on_revoke:
            await self.flush()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass


async def _no_flush_on_revoke(world: World, broken: bool) -> None:
    """After a rebalance the records in memory belong to somebody else."""

    async def main() -> None:
        buffer = _Buffer(world, flushes_on_revoke=not broken)
        async with consumer_of(world, ORDERS, listener=buffer) as consumer:
            buffer.consumer = consumer
            try:
                while True:
                    found = await consumer.getmany(timeout_ms=2_000)
                    for record in [record for records in found.values() for record in records]:
                        await buffer.add(record)
                    if not found:
                        await buffer.flush()
            finally:
                await buffer.on_partitions_revoked(set())

    world.app("shop", ordering(world))
    world.app("billing 1", main)
    await world.sleep("8s")
    second = world.app("billing 2", main)
    await world.sleep("8s")
    await second.stop()
    await world.sleep("8s")


async def _retry_without_idempotence(world: World, broken: bool) -> None:
    async def main() -> None:
        servers = world.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=not broken, acks="all") as producer:
            for order in range(COUNT):
                while True:
                    try:
                        await producer.send_and_wait(ORDERS, b"%d" % order)
                        break
                    except KafkaError:
                        await asyncio.sleep(0.5)
                world.did("ordered", order)
                await asyncio.sleep(0.4)

    world.app("shop", main)
    await world.sleep("3s")
    await world.disturb("20s")


class _Fenced(Exception):
    """Another member has written for this partition, in a later generation."""


async def _zombie_writer(world: World, broken: bool) -> None:
    """The right one writes with the generation of the group as a fencing token."""

    async def main() -> None:
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                generation = consumer._coordinator.generation
                await asyncio.sleep(0.3)
                async with world.store.transaction() as rows:
                    if not broken and rows.get(("token", record.partition), 0) > generation:
                        # The supervisor starts this process again. To go on would leave this record out.
                        raise _Fenced(record)
                    rows["token", record.partition] = generation
                    rows.did("billed", order_of(record))
                await commit(consumer, record)

    await two_members(world, main)


async def _dead_letters_lost(world: World, broken: bool) -> None:
    """Every third order cannot be billed."""

    async def main() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, linger_ms=300) as producer,
            consumer_of(world, ORDERS) as consumer,
        ):
            async for record in consumer:
                if order_of(record) % 3:
                    world.did("billed", order_of(record))
                else:
                    sent = await producer.send("dead-letters", record.value)
                    if not broken:
                        await sent
                await commit(consumer, record)

    await two_members(world, main)


async def _poll_interval_exceeded(world: World, broken: bool) -> None:
    """A bill of the tenth order takes 40 s, and the group waits 30 s for a poll."""

    async def main() -> None:
        settings: dict[str, Any] = {"max_poll_interval_ms": 30_000} if broken else {}
        async with consumer_of(world, ORDERS, **settings) as consumer:
            async for record in consumer:
                await asyncio.sleep(40 if order_of(record) == 10 else 0.05)
                world.did("billed", order_of(record))
                await commit(consumer, record)

    world.app("shop", ordering(world))
    world.apps(2, main, "billing")
    await world.sleep("60s")


async def _offsets_of_another_partition(world: World, broken: bool) -> None:
    async def main() -> None:
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                world.did("billed", order_of(record))
                await commit(consumer, record, partition=0 if broken else None)

    await two_members(world, main)


async def _memory_deduplication(world: World, broken: bool) -> None:
    async def main() -> None:
        seen: set[int] = set()
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                order = order_of(record)
                if broken and order not in seen:
                    seen.add(order)
                    world.did("billed", order)
                if not broken:
                    async with world.store.transaction() as rows:
                        if not rows.get(order):
                            rows[order] = True
                            rows.did("billed", order)
                await asyncio.sleep(0.1)
                await commit(consumer, record)

    await two_members(world, main)


async def _dual_write(world: World, broken: bool) -> None:
    """An order is paid in the store, and told to others through Kafka. The right one has an outbox in the store."""

    async def paying() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            for order in range(COUNT):
                async with world.store.transaction() as rows:
                    if rows.get(("paid", order)):
                        continue
                    rows["paid", order] = True
                    rows.did("paid", order)
                    if not broken:
                        rows["outbox"] = [*rows.get("outbox", []), order]
                if broken:
                    await producer.send_and_wait("payments", b"%d" % order)
                await asyncio.sleep(0.3)

    async def relaying() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers) as producer:
            while True:
                for order in world.store.get("outbox", []):
                    await producer.send_and_wait("payments", b"%d" % order)
                    async with world.store.transaction() as rows:
                        rows["outbox"] = [one for one in rows["outbox"] if one != order]
                await asyncio.sleep(0.2)

    world.app("paying", paying, restart_after="1s")
    if not broken:
        world.app("relay", relaying, restart_after="1s")
    await world.sleep("3s")
    await world.disturb("15s", brokers=False, apps=True)


async def _short_timeout(world: World, broken: bool) -> None:
    """A customer whose order takes too long is told that it failed."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, enable_idempotence=True) as producer:
            for order in range(COUNT):
                sending = producer.send_and_wait(ORDERS, b"%d" % order)
                try:
                    if broken:
                        await asyncio.wait_for(sending, 0.3)
                    else:
                        await sending
                    world.did("ordered", order)
                except (TimeoutError, KafkaError):
                    if broken:
                        world.did("refused", order)
                await asyncio.sleep(0.3)

    world.app("shop", main)
    await world.sleep("3s")
    await world.disturb("20s")


async def _wrong_reset(world: World, broken: bool) -> None:
    async def main() -> None:
        reset = "latest" if broken else "earliest"
        async with consumer_of(world, ORDERS, auto_offset_reset=reset) as consumer:
            async for record in consumer:
                world.did("billed", order_of(record))
                await commit(consumer, record)

    world.app("shop", ordering(world))
    world.app("billing", main)
    await world.sleep("20s")


async def _read_uncommitted(world: World, broken: bool) -> None:
    """Some orders are withdrawn before their transaction is committed."""

    async def shop() -> None:
        servers = world.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="shop") as producer:
            for order in range(COUNT):
                await producer.begin_transaction()
                await producer.send_and_wait(ORDERS, b"%d" % order)
                await asyncio.sleep(0.1)
                if order % 7 == 3:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                await asyncio.sleep(0.2)

    async def billing() -> None:
        level = "read_uncommitted" if broken else "read_committed"
        async with consumer_of(world, ORDERS, isolation_level=level) as consumer:
            async for record in consumer:
                world.did("billed", order_of(record))
                await commit(consumer, record)

    world.app("shop", shop)
    world.app("billing", billing)
    await world.sleep("25s")


BILLED = Did("billed")
DEAD = Records("dead-letters", number)
ALL_BILLED = AtLeastOnce(PLACED, BILLED)
SERVICES = [
    Service(
        "commit before work", 0, "ahead", [ALL_BILLED, OffsetsNotAhead(PLACED, BILLED, "billing")], _commit_before_work
    ),
    Service("no flush on revoke", 0, "again", [ExactlyOnce(PLACED, BILLED)], _no_flush_on_revoke),
    Service(
        "retry without idempotence", 5, "again", [ExactlyOnce(Did("ordered"), PLACED)], _retry_without_idempotence, 3
    ),
    Service("zombie writer", 4, "zombie", [ALL_BILLED, NoZombieWrites(PLACED, BILLED, "billing")], _zombie_writer),
    Service("lost dead letters", 19, "missing", [AtLeastOnce(PLACED, AnyOf(BILLED, DEAD))], _dead_letters_lost),
    Service("poll interval exceeded", 0, "again", [ExactlyOnce(PLACED, BILLED)], _poll_interval_exceeded),
    Service(
        "offsets of another partition",
        4,
        "ahead",
        [ALL_BILLED, OffsetsNotAhead(PLACED, BILLED, "billing")],
        _offsets_of_another_partition,
    ),
    Service("deduplication in memory", 0, "again", [ExactlyOnce(PLACED, BILLED)], _memory_deduplication),
    Service("dual write", 14, "missing", [AtLeastOnce(Did("paid"), Records("payments", number))], _dual_write),
    Service("short time-out", 0, "unknown", [ExactlyOnce(Did("ordered"), PLACED)], _short_timeout, 3),
    Service("wrong auto.offset.reset", 0, "missing", [NothingLost(Did("ordered"), PLACED), ALL_BILLED], _wrong_reset),
    Service("read uncommitted", 0, "unknown", [ExactlyOnce(PLACED, BILLED)], _read_uncommitted),
]
