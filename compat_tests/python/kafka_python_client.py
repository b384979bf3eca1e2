"""kafka-python as the suite's `Client`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, MessageSizeTooLargeError

from testkit.clients import PATIENCE_S, Client, Member, ProduceError, Record


def to_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers)
    return Record(message.key, message.value, headers, message.timestamp, message.partition, message.offset)


class KafkaPythonClient(Client):
    name = "kafka-python"
    null_header_values = False
    keyless_tombstones = False

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
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=max_request_bytes,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(PATIENCE_S)
            answers = [future.get(PATIENCE_S) for future in futures]
        except MessageSizeTooLargeError as error:
            raise ProduceError("MESSAGE_TOO_LARGE") from error
        except KafkaError as error:
            raise ProduceError(str(error)) from error
        finally:
            producer.close()
        return [(answer.partition, answer.offset) for answer in answers]

    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=2)
        try:
            producer.init_transactions()
            for commit, records in transactions:
                producer.begin_transaction()
                for record in records:
                    producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                if commit:
                    producer.commit_transaction()
                else:
                    producer.flush(PATIENCE_S)
                    producer.abort_transaction()
        finally:
            producer.close()

    def consume(
        self, bootstrap: str, topic: str, *, from_time_ms: int | None = None, committed: bool = False
    ) -> list[Record]:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=12 << 20,
            consumer_timeout_ms=int(PATIENCE_S * 1000),
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        try:
            parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
            consumer.assign(parts)
            ends = consumer.end_offsets(parts)
            if from_time_ms is None:
                starts = consumer.beginning_offsets(parts)
            else:
                found = consumer.offsets_for_times(dict.fromkeys(parts, from_time_ms))
                starts = {part: found[part].offset if found[part] is not None else ends[part] for part in parts}
            for part in parts:
                consumer.seek(part, starts[part])
            left = {part for part in parts if starts[part] < ends[part]}
            read: list[Record] = []
            deadline = time.monotonic() + PATIENCE_S
            while left:
                assert time.monotonic() < deadline, f"{left} gave no more and did not end"
                for part, messages in consumer.poll(timeout_ms=100).items():
                    read += [to_record(message) for message in messages if message.offset < ends[part]]
                # The last records may be markers of transactions, which it skips silently.
                left = {part for part in left if consumer.position(part) < ends[part]}
            return read
        finally:
            consumer.close()

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return KafkaPythonMember(bootstrap, topic, group, self.session_timeout_ms)


class KafkaPythonMember(Member, ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, bootstrap: str, topic: str, group: str, session_timeout_ms: int) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            # Its listeners run on the I/O thread, where a commit cannot block: it commits by itself before it rejoins.
            enable_auto_commit=True,
            heartbeat_interval_ms=300,
            session_timeout_ms=session_timeout_ms,
        )
        self._read: list[Record] = []
        self._assigned: set[int] = set()
        self._leave = threading.Event()
        self._failure: BaseException | None = None
        self._consumer.subscribe([topic], listener=self)
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)
        self._thread.start()

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._assigned = {part.partition for part in self._consumer.assignment()}

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._assigned -= {part.partition for part in revoked}

    def _run(self) -> None:
        try:
            while not self._leave.is_set():
                # Not 100 ms, because a poll of 3.0.12 that ends while its member is joining loses the group for good.
                # 100 ms after it subscribed it gets the topic's metadata and joins again.
                for messages in self._consumer.poll(timeout_ms=500).values():
                    self._read += [to_record(message) for message in messages]
            if self._assigned:
                self._consumer.commit()
            self._consumer.close(autocommit=False)
        except BaseException as error:  # noqa: BLE001 -- handed to the test's thread
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise AssertionError("the member failed") from self._failure

    def partitions(self) -> set[int]:
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
