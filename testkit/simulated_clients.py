"""Clients of one simulated node that remember what was acknowledged, and their checks.

Every client event goes into the world's trace. Checks cite invariants by letter: P partitions, L logs, G groups, T
transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pykbroker.net.client import BrokerConnection
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.simulated.sim_node import PORT
from pykbroker_worlds.simulated.world import SimWorld

TIMEOUT_MS = 3_000


class Client:
    """A connection that is made again until it works; requests are tried again until they are answered."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.topic_ids: dict[str, bytes] = {}
        self._runtime = world.runtime(name, MemoryDisk(record=False))
        self._connection = BrokerConnection(self._runtime, "localhost", PORT, name)

    async def call(self, request: Any) -> Any:
        """Send until there is a response, whatever its code."""
        while True:
            try:
                return await self._connection.send(request, TIMEOUT_MS)
            except (ConnectionError, TimeoutError):
                # A late response must not be taken for that of the next try.
                self._connection.close()
                self._connection = BrokerConnection(self._runtime, "localhost", PORT, self.name)
                await asyncio.sleep(self._runtime.random.uniform(0.01, 0.2))

    async def until(self, attempt: Callable[[], Awaitable[Any]], retriable: frozenset[int]) -> Any:
        """Try again while the response is one of `retriable` error codes."""
        while True:
            answer = await attempt()
            if answer not in retriable:
                return answer
            await asyncio.sleep(self._runtime.random.uniform(0.01, 0.1))

    async def create_topic(self, name: str, partitions: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        while True:
            answer = (await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics[0]
            if answer.error_code != ErrorCode.INVALID_REPLICATION_FACTOR:
                break
            # The only broker is shutting down, and gets no new replicas.
            await asyncio.sleep(self._runtime.random.uniform(0.01, 0.1))
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer
        self.world.trace.note(self.name, "created", name, answer.error_code)

    async def topics(self) -> dict[str, bytes]:
        answer = await self.call(MetadataRequest(topics=None))
        self.topic_ids = {topic.name: topic.topic_id for topic in answer.topics}
        return self.topic_ids

    async def topic_id(self, name: str) -> bytes:
        while name not in self.topic_ids:
            await self.topics()
        return self.topic_ids[name]


RETRY_PRODUCE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


class Producer(Client):
    """An idempotent producer: one batch at a time, sent again until it is acknowledged. `acknowledged` is offset ->
    value."""

    def __init__(self, world: SimWorld, name: str, topic: str, partition: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.partition = partition
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0
        #: the number of batches whose producer state a power loss has removed, and that were sent under a new id
        self.restarts = 0
        self._producer_id = -1
        self._sequence = 0

    async def _new_id(self) -> None:
        while True:
            answer = await self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            if not answer.error_code:
                self._producer_id, self._sequence = answer.producer_id, 0
                return

    async def run(self, batches: int) -> None:
        rng = self._runtime.random
        await self._new_id()
        topic_id = await self.topic_id(self.topic)
        for _ in range(batches):
            count = rng.randint(1, 4)
            values = [f"{self.name}-{self.sent + number}".encode() for number in range(count)]
            self.sent += count
            while True:
                now_ms = self.world.now_ms()
                batch = build_batch(
                    [(None, value, (), now_ms) for value in values],
                    producer_id=self._producer_id,
                    producer_epoch=0,
                    base_sequence=self._sequence,
                )
                data = TopicProduceData(
                    topic_id=topic_id, partition_data=[PartitionProduceData(index=self.partition, records=batch)]
                )
                answer = await self.call(
                    ProduceRequest(transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
                )
                found = answer.responses[0].partition_responses[0]
                self.world.trace.note(self.name, found.error_code, found.base_offset)
                if not found.error_code:
                    break
                if found.error_code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                    self.restarts += 1
                    await self._new_id()
                else:
                    assert found.error_code in RETRY_PRODUCE, ErrorCode(found.error_code)
                    await asyncio.sleep(0.05)
            for number, value in enumerate(values):
                offset = found.base_offset + number
                # T1: an offset is never given to two values, unless a power loss has removed the first one.
                self.acknowledged[offset] = value
            self._sequence += count
            await asyncio.sleep(rng.uniform(0, 0.05))


class Consumer(Client):
    """Reads one partition from the start; `seen` is offset -> value."""

    def __init__(self, world: SimWorld, name: str, topic: str, partition: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.partition = partition
        self.seen: dict[int, bytes] = {}
        self.position = 0
        self.high_watermark = -1

    async def poll(self, wait_ms: int = 500) -> int:
        """Fetch once; return the number of new records."""
        asked = FetchPartition(
            partition=self.partition, fetch_offset=self.position, current_leader_epoch=-1, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=await self.topic_id(self.topic), partitions=[asked])],
        )
        answer = await self.call(request)
        assert not answer.error_code, answer
        if not answer.responses:
            return 0
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A power loss has removed what was read, or the first segment's name, which the node had not synced.
            self.position = await self._earliest()
            self.world.trace.note(self.name, "out of range", self.position)
            return 0
        if found.error_code:
            assert found.error_code in RETRY_PRODUCE, ErrorCode(found.error_code)
            await asyncio.sleep(0.05)
            return 0
        count = 0
        self.high_watermark = found.high_watermark
        for position, header in iter_batches(found.records or b""):
            for record in iter_records(found.records, position, header):
                if record.offset < self.position:
                    continue
                # P12: offsets are dense.
                assert record.offset == self.position, (record.offset, self.position)
                self.seen[record.offset] = bytes(record.value or b"")
                self.position += 1
                count += 1
        # L: no record beyond the high watermark is returned.
        assert self.position <= found.high_watermark or not count
        self.world.trace.note(self.name, self.position, found.high_watermark)
        return count

    async def _earliest(self) -> int:
        asked = ListOffsetsTopic(
            name=self.topic, partitions=[ListOffsetsPartition(partition_index=self.partition, timestamp=-2)]
        )
        while True:
            found = (await self.call(ListOffsetsRequest(replica_id=-1, topics=[asked]))).topics[0].partitions[0]
            if not found.error_code:
                return int(found.offset)
            assert found.error_code in RETRY_PRODUCE, ErrorCode(found.error_code)
            await asyncio.sleep(0.05)

    async def read_everything(self) -> None:
        """Read from the log start to the high watermark."""
        self.position, self.seen, self.high_watermark = await self._earliest(), {}, -1
        while self.position != self.high_watermark:
            await self.poll(0)


RETRY_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class Committer(Client):
    """Commits rising offsets of a group that assigns its partitions itself. `committed` is the last acknowledged
    one."""

    def __init__(self, world: SimWorld, name: str, topic: str) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.committed = -1
        self.attempted = -1

    async def _find(self) -> None:
        while True:
            answer = await self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.name]))
            if not answer.coordinators[0].error_code:
                return
            await asyncio.sleep(0.05)

    async def run(self, commits: int) -> None:
        await self._find()
        topic_id = await self.topic_id(self.topic)
        for offset in range(commits):
            self.attempted = offset
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
            topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[part])
            while True:
                request = OffsetCommitRequest(group_id=self.name, generation_id_or_member_epoch=-1, topics=[topic])
                answer = await self.call(request)
                code = answer.topics[0].partitions[0].error_code
                self.world.trace.note(self.name, offset, code)
                if not code:
                    break
                assert code in RETRY_GROUP, ErrorCode(code)
                await self._find()
            self.committed = offset
            await asyncio.sleep(self._runtime.random.uniform(0, 0.1))

    async def fetched(self) -> int:
        """Return the committed offset of the coordinator, or -1 if there is none."""
        topic = OffsetFetchRequestTopics(topic_id=await self.topic_id(self.topic), partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.name, topics=[topic])])
        while True:
            group = (await self.call(request)).groups[0]
            if group.error_code in RETRY_GROUP:
                await self._find()
                continue
            assert not group.error_code, ErrorCode(group.error_code)
            found = group.topics[0].partitions[0]
            if found.error_code not in RETRY_GROUP:
                assert not found.error_code, ErrorCode(found.error_code)
                return int(found.committed_offset)
