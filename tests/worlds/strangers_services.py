"""Short services by somebody who knows of worlds only its README, each with a well-known bug, and without it.

The form is that of planted_services.py. `seed` is the first that finds the bug.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from pykbroker_worlds import (
    AnyOf,
    AtLeastOnce,
    Did,
    ExactlyOnce,
    Followed,
    InOrder,
    NothingLost,
    OffsetsNotAhead,
    Records,
    StoredRecord,
    World,
)
from tests.worlds.planted_services import (
    ORDERS,
    PLACED,
    Service,
    commit,
    consumer_of,
    number,
    order_of,
    ordering,
    two_members,
)

RETRIES, BILLS, CUSTOMERS, PAYMENTS = "orders-retry", "bills", "customers", "payments"
CONFIRMED, CANCELLED = "confirmed", "cancelled"
KNOWN = 30  # customers


# -- what several services need ---------------------------------------------------------------------------------------


async def _make_topics(world: World, *names: str, **settings: str) -> None:
    """Create topics with a replica on each of three brokers, as somebody does before the services are deployed."""
    admin = AIOKafkaAdminClient(bootstrap_servers=world.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 4, 3, topic_configs=settings) for name in names])
    finally:
        await admin.close()


# -- the services -----------------------------------------------------------------------------------------------------


async def _each_task_commits(world: World, broken: bool) -> None:
    """Ten orders at a time. Broken: each task commits its own offset, also if orders in front of it are not billed."""

    async def bill(record: ConsumerRecord) -> None:
        await asyncio.sleep(random.expovariate(1 / 0.2))  # the payment provider, slow now and then
        world.did("billed", order_of(record))

    async def one_by_one(consumer: AIOKafkaConsumer) -> None:
        room = asyncio.Semaphore(10)
        tasks = set()

        async def handle(record: ConsumerRecord) -> None:
            try:
                await bill(record)
                await commit(consumer, record)
            finally:
                room.release()

        async for record in consumer:
            await room.acquire()
            task = asyncio.create_task(handle(record))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def by_batch(consumer: AIOKafkaConsumer) -> None:
        while True:
            batch = await consumer.getmany(timeout_ms=1000, max_records=10)
            await asyncio.gather(*(bill(record) for records in batch.values() for record in records))
            for records in batch.values():
                await commit(consumer, records[-1])

    async def main() -> None:
        async with consumer_of(world, ORDERS) as consumer:
            await (one_by_one(consumer) if broken else by_batch(consumer))

    await two_members(world, main)


async def _retry_topic(world: World, broken: bool) -> None:
    """Broken: an order that cannot be billed now waits in a retry topic, and later ones of its customer overtake it."""

    class Unavailable(Exception):
        pass

    async def bill(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.05)
        if random.random() < 0.05:
            raise Unavailable
        world.did("billed", order_of(record))

    async def bill_in_place(record: ConsumerRecord) -> None:
        while True:
            try:
                return await bill(record)
            except Unavailable:
                await asyncio.sleep(1)

    async def orders(producer: AIOKafkaProducer) -> None:
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                if broken:
                    try:
                        await bill(record)
                    except Unavailable:
                        await producer.send_and_wait(RETRIES, record.value, key=record.key)
                else:
                    await bill_in_place(record)
                await commit(consumer, record)

    async def retries() -> None:
        async with consumer_of(world, RETRIES, group="billing-retry") as consumer:
            async for record in consumer:
                await asyncio.sleep(5)
                await bill_in_place(record)
                await commit(consumer, record)

    async def main() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, enable_idempotence=True) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(orders(producer))
            if broken:
                tasks.create_task(retries())

    await two_members(world, main)


async def _auto_commit_beside_transactions(world: World, broken: bool) -> None:
    """Copies orders to bills, one transaction for each. The broken one leaves aiokafka's automatic commit on, and its
    offsets are not in the transactions."""

    async def main() -> None:
        at_work = asyncio.Lock()

        class Wait(ConsumerRebalanceListener):  # type: ignore[misc]
            """Lets the next owner of a partition, which may be this process, begin after the open transaction."""

            async def on_partitions_revoked(self, revoked: Any) -> None:
                async with at_work:
                    pass

            async def on_partitions_assigned(self, assigned: Any) -> None:
                pass

        async with (
            AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, transactional_id="billing") as producer,
            consumer_of(world, ORDERS, listener=Wait(), enable_auto_commit=broken) as consumer,
        ):
            async for record in consumer:
                place, behind = TopicPartition(record.topic, record.partition), record.offset + 1
                async with at_work:
                    if await consumer.position(place) != behind:
                        continue  # the partition was revoked just now, and this record comes again
                    await asyncio.sleep(0.1)
                    async with producer.transaction():
                        await producer.send_and_wait(BILLS, record.value, key=record.key)
                        if not broken:
                            await producer.send_offsets_to_transaction({place: behind}, "billing")

    shop = asyncio.create_task(ordering(world)())  # here, where no fault restarts it: it would place its orders again
    world.app("billing", main, restart_after="1s")
    await world.sleep("6s")
    await world.disturb("20s", brokers=False, apps=True)
    await shop


def _customer(record: StoredRecord) -> int:
    return number(record) // 3


async def _voucher_for_the_first_order(world: World, broken: bool) -> None:
    """Each customer gets one voucher. Broken: between the look at the store and the write another member may write."""

    async def main() -> None:
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                customer = order_of(record) // 3
                async with world.store.transaction() as rows:
                    has_one = customer in rows
                if not has_one:
                    await asyncio.sleep(0.1)  # the voucher service makes a code
                    async with world.store.transaction() as rows:
                        if broken or customer not in rows:
                            rows[customer] = order_of(record)
                            rows.did("voucher", customer)
                await commit(consumer, record)

    await two_members(world, main)


async def _leader_alone(world: World, broken: bool) -> None:
    """Broken: the producer has aiokafka's default of acks=1, and the leader fails before anybody copied the order."""

    async def shop() -> None:
        acks: Any = 1 if broken else "all"
        async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, acks=acks) as producer:
            for order in range(200):
                try:
                    await producer.send_and_wait(ORDERS, b"%d" % order)
                except KafkaError:
                    continue  # the customer sees an error
                world.did("ordered", order)
                await asyncio.sleep(0.2)

    await _make_topics(world, ORDERS, **{"min.insync.replicas": "2"})
    world.app("shop", shop)
    await world.sleep("5s")
    await world.disturb("30s")


async def _half_a_table(world: World, broken: bool) -> None:
    """A table of customers in memory, from a compacted topic. Broken: it is taken as read when nothing came for 1 s."""

    async def customers() -> set[int]:
        known: set[int] = set()
        async with AIOKafkaConsumer(
            CUSTOMERS, bootstrap_servers=world.bootstrap_servers, group_id=None, auto_offset_reset="earliest"
        ) as consumer:
            ends = {} if broken else await consumer.end_offsets(consumer.assignment())
            while True:
                batch = await consumer.getmany(timeout_ms=1000)
                known.update(int(record.key) for records in batch.values() for record in records)
                if broken:
                    is_read = not batch
                else:
                    is_read = all([await consumer.position(place) >= end for place, end in ends.items()])
                if is_read:
                    return known

    async def main() -> None:
        known = await customers()
        async with consumer_of(world, ORDERS) as consumer:
            async for record in consumer:
                order = order_of(record)
                world.did("billed" if order % KNOWN in known else "rejected", order)
                await commit(consumer, record)

    await _make_topics(world, ORDERS)
    await _make_topics(world, CUSTOMERS, **{"cleanup.policy": "compact"})
    async with AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, enable_idempotence=True) as producer:
        for customer in range(KNOWN):
            await producer.send_and_wait(CUSTOMERS, b"a name", key=b"%d" % customer)
    await two_members(world, main, brokers=True)


async def _timers_in_memory(world: World, broken: bool) -> None:
    """An order that is not paid in 5 s is cancelled. Broken: only a timer of the process that saw it knows of that."""

    async def paying() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=world.bootstrap_servers, enable_idempotence=True) as producer,
            consumer_of(world, ORDERS, group="customers") as consumer,
        ):
            async for record in consumer:
                if order_of(record) % 4:  # the others forget to pay
                    await producer.send_and_wait(PAYMENTS, record.value, key=record.key)
                await commit(consumer, record)

    async def cancel(order: int) -> None:
        async with world.store.transaction() as rows:
            if rows[order] not in (CONFIRMED, CANCELLED):
                rows[order] = CANCELLED
                rows.did(CANCELLED, order)

    async def cancel_later(order: int) -> None:
        await asyncio.sleep(5)
        await cancel(order)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(1)
            for order, state in list(world.store.items()):
                if state not in (CONFIRMED, CANCELLED) and time.time() > state:
                    await cancel(order)

    async def handle(record: ConsumerRecord, tasks: asyncio.TaskGroup) -> None:
        order = order_of(record)
        async with world.store.transaction() as rows:
            is_new = order not in rows
            if record.topic == ORDERS and is_new:
                rows[order] = time.time() + 5
            elif record.topic == PAYMENTS and rows.get(order) not in (CONFIRMED, CANCELLED):
                rows[order] = CONFIRMED
                rows.did(CONFIRMED, order)
        if broken and record.topic == ORDERS and is_new:
            tasks.create_task(cancel_later(order))

    async def main() -> None:
        async with consumer_of(world, ORDERS, PAYMENTS) as consumer, asyncio.TaskGroup() as tasks:
            if not broken:
                tasks.create_task(sweep())
            async for record in consumer:
                await handle(record, tasks)
                await commit(consumer, record)

    shop = asyncio.create_task(ordering(world)())
    world.app("customers", paying, restart_after="1s")
    world.apps(2, main, "billing", restart_after="1s")
    await world.sleep("6s")
    await world.disturb("20s", brokers=False, apps=True)
    await shop


SERVICES = [
    Service(
        "each task commits",
        3,
        "ahead",
        [AtLeastOnce(PLACED, Did("billed")), OffsetsNotAhead(PLACED, Did("billed"), "billing")],
        _each_task_commits,
    ),
    Service(
        "retry topic",
        1,
        "order",
        [AtLeastOnce(PLACED, Did("billed")), InOrder(PLACED, Did("billed"))],
        _retry_topic,
    ),
    Service(
        "auto-commit beside transactions",
        3,
        "again",
        [ExactlyOnce(PLACED, Records(BILLS, number))],
        _auto_commit_beside_transactions,
    ),
    Service(
        "voucher for the first order",
        3,
        "again",
        [ExactlyOnce(Records(ORDERS, _customer), Did("voucher"))],
        _voucher_for_the_first_order,
    ),
    Service("leader alone", 24, "lost", [NothingLost(Did("ordered"), PLACED)], _leader_alone, brokers=3),
    Service("half a table", 14, "missing", [AtLeastOnce(PLACED, Did("billed"))], _half_a_table, brokers=3),
    Service(
        "timers in memory",
        0,
        "missing",
        [Followed(PLACED, AnyOf(Did(CONFIRMED), Did(CANCELLED)), "60s")],
        _timers_in_memory,
    ),
]
