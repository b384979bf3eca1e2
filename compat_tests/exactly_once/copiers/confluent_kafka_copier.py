"""Consume, transform, produce with confluent-kafka (librdkafka)."""

from __future__ import annotations

from confluent_kafka import OFFSET_STORED, Consumer, KafkaException, Message, Producer, TopicPartition

from compat_tests.exactly_once.copiers.task import Task, say, wants_abort


def make_consumer(task: Task) -> Consumer:
    config = {
        "bootstrap.servers": task.bootstrap,
        "group.id": task.group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 3,
        "group.protocol": "consumer" if task.protocol == "consumer" else "classic",
    }
    if task.protocol != "consumer":
        config |= {"session.timeout.ms": task.session_timeout_ms, "heartbeat.interval.ms": 200}
    return Consumer(config)


def make_producer(task: Task) -> Producer:
    return Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "transactional.id": task.transactional_id,
            "transaction.timeout.ms": task.transaction_timeout_ms,
            "reconnect.backoff.max.ms": 200,
            "linger.ms": 0,
            "log_level": 3,
            # With the default, rebootstrap, the producer hangs for good if the only broker was killed: librdkafka
            # removes the broker and waits for it as the group's coordinator (its issues 5511 and 5456, open).
            "metadata.recovery.strategy": "none",
            # librdkafka also removes a broker that a Metadata answer leaves out, and still waits for it as the
            # coordinator. The wait outlasts the call's timeout, and ends when a connection to any broker opens or
            # closes (5511 too). So connections are closed as idle within the transaction's time.
            "connections.max.idle.ms": task.transaction_timeout_ms // 3,
        }
    )


def main() -> None:
    task = Task.from_arguments()
    producer = make_producer(task)
    producer.init_transactions(60)
    consumer = make_consumer(task)
    if task.protocol == "assign":
        consumer.assign([TopicPartition(task.source, number, OFFSET_STORED) for number in task.partitions])
    else:

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            say("assigned", partitions=[part.partition for part in partitions])

        consumer.subscribe([task.source], on_assign=assigned)
    while True:
        messages = [message for message in consumer.consume(task.at_most, timeout=0.05) if message.error() is None]
        if messages:
            copy(task, producer, consumer, messages)


def copy(task: Task, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    first: dict[int, int] = {}
    after: dict[int, int] = {}
    producer.begin_transaction()
    try:
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            first.setdefault(partition, offset)
            after[partition] = offset + 1
            producer.produce(task.target, value + b"!", partition=partition)
        offsets = [TopicPartition(task.source, number, offset) for number, offset in after.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        if not wants_abort():
            commit(producer)
            say("committed", records=len(messages))
            return
        # Otherwise unsent records would be discarded, and the transaction to abort would be empty.
        producer.flush(10)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        say("failed", error=str(error))
    producer.abort_transaction(60)
    say("aborted")
    mine = {part.partition for part in consumer.assignment()}
    for number, offset in first.items():
        if number in mine:
            consumer.seek(TopicPartition(task.source, number, offset))


def commit(producer: Producer) -> None:
    for attempt in range(5):
        try:
            return producer.commit_transaction(5)
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == 4:
                raise
            say("retried", error=str(error))


if __name__ == "__main__":
    main()
