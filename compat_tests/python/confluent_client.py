"""confluent-kafka (librdkafka) as the suite's `Client`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from testkit.clients import PATIENCE_S, Client, Member, ProduceError, Record


def to_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(
        message.key(), message.value(), headers, message.timestamp()[1], message.partition(), message.offset()
    )


class ConfluentClient(Client):
    name = "confluent-kafka"

    def __init__(self, *, batch_bytes: int = 1_000_000) -> None:
        self._batch_bytes = batch_bytes

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
    ) -> list[tuple[int, int]]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": self._batch_bytes,
                "log_level": 3,
                "message.max.bytes": max_request_bytes,
                "delivery.timeout.ms": int(PATIENCE_S * 1000),
            }
        )
        placed: list[tuple[int, int]] = [(-1, -1)] * len(records)
        failed: list[KafkaError] = []

        def delivered(index: int) -> Any:
            def report(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    placed[index] = (message.partition(), message.offset())

            return report

        for i, record in enumerate(records):
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp_ms,
                on_delivery=delivered(i),
            )
        left = producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records were not answered"
        if failed:
            raise ProduceError(
                "MESSAGE_TOO_LARGE" if failed[0].code() == KafkaError.MSG_SIZE_TOO_LARGE else failed[0].str()
            )
        return placed

    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 2, "log_level": 3}
        )
        producer.init_transactions(PATIENCE_S)
        for commit, records in transactions:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    topic, key=record.key, value=record.value, partition=record.partition, timestamp=record.timestamp_ms
                )
            if commit:
                producer.commit_transaction(PATIENCE_S)
            else:
                # Unsent records would be discarded, but an aborted transaction must be in the log.
                producer.flush(PATIENCE_S)
                producer.abort_transaction(PATIENCE_S)

    def consume(
        self, bootstrap: str, topic: str, *, from_time_ms: int | None = None, committed: bool = False
    ) -> list[Record]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-committed",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 12 << 20,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "check.crcs": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        try:
            known = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
            start = OFFSET_BEGINNING if from_time_ms is None else from_time_ms
            parts = [TopicPartition(topic, number, start) for number in sorted(known)]
            if from_time_ms is not None:
                parts = consumer.offsets_for_times(parts, timeout=PATIENCE_S)
            consumer.assign(parts)
            open_partitions = {part.partition for part in parts}
            read: list[Record] = []
            deadline = time.monotonic() + PATIENCE_S
            while open_partitions:
                assert time.monotonic() < deadline, f"partitions {sorted(open_partitions)} gave no more and did not end"
                for message in consumer.consume(100, timeout=0.05):
                    error = message.error()
                    if error is None:
                        read.append(to_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_partitions.discard(message.partition())
                    else:
                        raise KafkaException(error)
            return read
        finally:
            consumer.close()

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return ConfluentMember(bootstrap, topic, group, **{"session.timeout.ms": str(self.session_timeout_ms)})


class ConfluentMember(Member):
    """`config`: librdkafka's keys, which override those set here; None removes a key."""

    def __init__(self, bootstrap: str, topic: str, group: str, **config: str | int | None) -> None:
        wanted: dict[str, str | int | bool | None] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            "topic.metadata.refresh.interval.ms": 1000,
            **config,
        }
        self._consumer = Consumer({key: value for key, value in wanted.items() if value is not None})
        # The callbacks of incremental protocols get the changes, the others get everything.
        self._incremental = "consumer" in wanted.values() or "cooperative-sticky" in wanted.values()
        self._read: list[Record] = []
        self._assigned: set[tuple[str, int]] = set()
        self._leave = threading.Event()
        self._failure: BaseException | None = None
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        new = {(part.topic, part.partition) for part in partitions}
        self._assigned = self._assigned | new if self._incremental else new

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(consumer)
        self._on_lost(consumer, partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(part.topic, part.partition) for part in partitions}
        self._assigned = self._assigned - gone if self._incremental else set()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def _run(self) -> None:
        try:
            while not self._leave.is_set():
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._read.append(to_record(message))
            if self._assigned:
                self._commit(self._consumer)
            self._consumer.close()
        except BaseException as error:  # noqa: BLE001 -- handed to the test's thread
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError("the member failed") from self._failure

    def partitions(self) -> set[int]:
        self._check()
        return {partition for _, partition in self._assigned}

    def assignment(self) -> set[tuple[str, int]]:
        self._check()
        return set(self._assigned)

    def records(self) -> list[Record]:
        self._check()
        return list(self._read)

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(PATIENCE_S)
        self._check()
        assert not self._thread.is_alive(), "the member did not leave"
