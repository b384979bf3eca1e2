"""The example's topics in Kafka: creating them, and reading one from its beginning to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from example.records import Times

#: The way to reach a cluster: an address, or librdkafka's settings with the address.
Reached: TypeAlias = str | Mapping[str, str]

#: The example's day is long ago; with the default retention Kafka would delete its records at the first check.
_KEPT = {"retention.ms": "-1"}
#: A record that is ahead of Kafka's clock by more than max_skew_s moves the watermark, so Kafka must refuse it.
_RAW = {**_KEPT, "message.timestamp.after.max.ms": str(1000 * Times().max_skew_s)}
#: The newest value of each key is the answer.
_UPSERTED = {"cleanup.policy": "compact"}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "clicks": _RAW,
    "orders": _RAW,
    "dead-letters": _KEPT,
    "conversions": _UPSERTED,
    "event-windows": _UPSERTED,
    "user-sessions": _UPSERTED,
    "pipeline-metrics": {},
}


def settings(kafka: Reached) -> dict[str, str]:
    return {"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka)


def create(kafka: Reached, partitions: int) -> list[str]:
    """Create the topics that are missing; return those that exist. `partitions` is for the raw ones; the others have
    one."""
    admin = AdminClient({**settings(kafka), "log_level": 1})
    new = [
        NewTopic(name, partitions if name in ("clicks", "orders") else 1, -1, config=dict(config))
        for name, config in TOPICS.items()
    ]
    there = []
    for name, made in admin.create_topics(new, operation_timeout=30).items():
        try:
            made.result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            there.append(name)
    return there


def read(kafka: Reached, topic: str, *, patience_s: float = 60) -> list[Message]:
    """Return all messages of the topic, partition by partition in order. Raises TimeoutError if no message comes."""
    consumer = Consumer(
        {
            **settings(kafka),
            "group.id": "example-reads-and-never-commits",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 1,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=patience_s).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return sorted(_until_the_end(consumer, set(partitions), patience_s), key=_place)
    finally:
        consumer.close()


def newest(messages: Sequence[Message]) -> dict[bytes, bytes]:
    """Return the newest value of each key of a compacted topic, without deleted keys."""
    values = {message.key() or b"": message.value() for message in messages}
    return {key: value for key, value in values.items() if value is not None}


def _until_the_end(consumer: Consumer, unread: set[int], patience_s: float) -> Iterator[Message]:
    deadline = time.monotonic() + patience_s
    while unread:
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                deadline = time.monotonic() + patience_s
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came for {patience_s} s")


def _place(message: Message) -> tuple[int, int]:
    return message.partition() or 0, message.offset() or 0
