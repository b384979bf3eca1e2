"""Consume, transform, produce with kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from compat_tests.exactly_once.copiers.task import Task, say, wants_abort


class Says(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        say("assigned", partitions=[part.partition for part in assigned])

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        pass


def main() -> None:
    task = Task.from_arguments()
    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap,
        transactional_id=task.transactional_id,
        transaction_timeout_ms=task.transaction_timeout_ms,
        reconnect_backoff_max_ms=200,
    )
    producer.init_transactions()
    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        session_timeout_ms=task.session_timeout_ms,
        reconnect_backoff_max_ms=200,
        fetch_max_wait_ms=50,
    )
    if task.protocol == "assign":
        consumer.assign([TopicPartition(task.source, number) for number in task.partitions])
    else:
        consumer.subscribe([task.source], listener=Says())
    while True:
        # Long, because a poll of 3.0.12 that ends while its member is joining never gets the assignment.
        polled = consumer.poll(timeout_ms=500, max_records=task.at_most)
        if polled:
            copy(task, producer, consumer, polled)


def copy(task: Task, producer: KafkaProducer, consumer: KafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    producer.begin_transaction()
    try:
        for part, messages in polled.items():
            for message in messages:
                producer.send(task.target, message.value + b"!", partition=part.partition)
        offsets = {part: OffsetAndMetadata(messages[-1].offset + 1, "", -1) for part, messages in polled.items()}
        # The member's metadata, so that a member of an earlier generation is refused (KIP-447); without one, the
        # group's name.
        group = task.group if task.protocol == "assign" else consumer.group_metadata()
        producer.send_offsets_to_transaction(offsets, group)
        if not wants_abort():
            producer.commit_transaction()
            say("committed", records=sum(map(len, polled.values())))
            return
    except KafkaError as error:
        say("failed", error=repr(error))
    producer.abort_transaction()
    say("aborted")
    mine = consumer.assignment()
    for part, messages in polled.items():
        if part in mine:
            consumer.seek(part, messages[0].offset)


if __name__ == "__main__":
    main()
