"""Consume, transform, produce with aiokafka, whose producer names a group by its id only (no KIP-447)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from compat_tests.exactly_once.copiers.task import Task, say, wants_abort


async def run() -> None:
    task = Task.from_arguments()
    assert task.protocol == "assign", "without the group's metadata only who has partitions of its own is safe"
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        transactional_id=task.transactional_id,
        transaction_timeout_ms=task.transaction_timeout_ms,
    )
    await producer.start()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        # aiokafka 0.14 ignores the error of a whole OffsetFetch answer, which it gets while a coordinator loads, and
        # takes it for "nothing was committed": with "earliest" it would copy everything again. The group has offsets
        # from the beginning, so this ends the program instead.
        auto_offset_reset="none",
        fetch_max_wait_ms=50,
    )
    await consumer.start()
    consumer.assign([TopicPartition(task.source, number) for number in task.partitions])
    while True:
        polled = await consumer.getmany(timeout_ms=50, max_records=task.at_most)
        if polled:
            await copy(task, producer, consumer, polled)


async def copy(
    task: Task, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, polled: dict[TopicPartition, list[Any]]
) -> None:
    await producer.begin_transaction()
    try:
        for part, messages in polled.items():
            for message in messages:
                await producer.send(task.target, message.value + b"!", partition=part.partition)
        offsets = {part: messages[-1].offset + 1 for part, messages in polled.items()}
        await producer.send_offsets_to_transaction(offsets, task.group)
        if not wants_abort():
            await producer.commit_transaction()
            say("committed", records=sum(map(len, polled.values())))
            return
    except ProducerFenced:
        raise
    except KafkaError as error:
        say("failed", error=repr(error))
    await producer.abort_transaction()
    say("aborted")
    for part, messages in polled.items():
        consumer.seek(part, messages[0].offset)


if __name__ == "__main__":
    asyncio.run(run())
