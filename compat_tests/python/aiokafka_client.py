"""aiokafka as the suite's `Client`: one event loop in a thread, and plain calls from the test to it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from testkit.clients import PATIENCE_S, Client, Member, ProduceError, Record

T = TypeVar("T")


def to_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers)
    return Record(message.key, message.value, headers, message.timestamp, message.partition, message.offset)


class LoopThread:
    """An event loop that runs until `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * PATIENCE_S)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class AiokafkaClient(Client):
    name = "aiokafka"
    null_header_values = False
    keyless_tombstones = False

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

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
        return self._thread.run(self._produce(bootstrap, topic, records, compression, idempotent, max_request_bytes))

    async def _produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        compression: str,
        idempotent: bool,
        max_request_bytes: int,
    ) -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=max_request_bytes,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp_ms,
                    list(record.headers),
                )
                for record in records
            ]
            answers = await asyncio.gather(*futures)
        except MessageSizeTooLargeError as error:
            raise ProduceError("MESSAGE_TOO_LARGE") from error
        except KafkaError as error:
            raise ProduceError(str(error)) from error
        finally:
            await producer.stop()
        return [(answer.partition, answer.offset) for answer in answers]

    def transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        self._thread.run(self._transact(bootstrap, topic, transactional_id, transactions))

    async def _transact(
        self, bootstrap: str, topic: str, transactional_id: str, transactions: Sequence[tuple[bool, Sequence[Record]]]
    ) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, linger_ms=2)
        await producer.start()
        try:
            for commit, records in transactions:
                await producer.begin_transaction()
                for record in records:
                    await producer.send(topic, record.value, record.key, record.partition, record.timestamp_ms)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.flush()
                    await producer.abort_transaction()
        finally:
            await producer.stop()

    def consume(
        self, bootstrap: str, topic: str, *, from_time_ms: int | None = None, committed: bool = False
    ) -> list[Record]:
        return self._thread.run(self._consume(bootstrap, topic, from_time_ms, committed))

    async def _consume(self, bootstrap: str, topic: str, from_time_ms: int | None, committed: bool) -> list[Record]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=12 << 20,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        await consumer.start()
        try:
            parts = await self._partitions(bootstrap, topic)
            consumer.assign(parts)
            ends = await consumer.end_offsets(parts)
            if from_time_ms is None:
                starts = await consumer.beginning_offsets(parts)
            else:
                found = await consumer.offsets_for_times(dict.fromkeys(parts, from_time_ms))
                starts = {part: at.offset if (at := found[part]) is not None else ends[part] for part in parts}
            for part in parts:
                consumer.seek(part, starts[part])
            left = {part for part in parts if starts[part] < ends[part]}
            read: list[Record] = []
            deadline = time.monotonic() + PATIENCE_S
            while left:
                assert time.monotonic() < deadline, f"{left} gave no more and did not end"
                for part, messages in (await consumer.getmany(timeout_ms=100)).items():
                    read += [to_record(message) for message in messages if message.offset < ends[part]]
                # The last records may be markers of transactions, which it skips silently.
                left = {part for part in left if await consumer.position(part) < ends[part]}
            return read
        finally:
            await consumer.stop()

    async def _partitions(self, bootstrap: str, topic: str) -> list[TopicPartition]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            (found,) = await admin.describe_topics([topic])
            return sorted(TopicPartition(topic, part["partition"]) for part in found["partitions"])
        finally:
            await admin.close()

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return AiokafkaMember(self._thread, bootstrap, topic, group, self.session_timeout_ms)


class AiokafkaMember(Member, ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, thread: LoopThread, bootstrap: str, topic: str, group: str, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._thread = thread
        self._read: list[Record] = []
        self._assigned: set[int] = set()
        self._leaving = False
        self._running = asyncio.run_coroutine_threadsafe(self._run(bootstrap, topic, group), thread.loop)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self._consumer.commit()
        self._assigned = set()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._assigned = {part.partition for part in assigned}

    async def _run(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            session_timeout_ms=self._session_timeout_ms,
        )
        self._consumer.subscribe([topic], listener=self)
        await self._consumer.start()
        try:
            while not self._leaving:
                for messages in (await self._consumer.getmany(timeout_ms=100)).values():
                    self._read += [to_record(message) for message in messages]
            if self._assigned:
                await self._consumer.commit()
        finally:
            await self._consumer.stop()

    def _check(self) -> None:
        if self._running.done():
            self._running.result()

    def partitions(self) -> set[int]:
        self._check()
        return set(self._assigned)

    def records(self) -> list[Record]:
        self._check()
        return list(self._read)

    def leave(self) -> None:
        self._leaving = True
        self._running.result(PATIENCE_S)
