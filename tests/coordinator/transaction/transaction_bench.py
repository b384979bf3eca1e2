"""A transaction coordinator with a simulated environment: its log, other brokers, leaders, producer ids, time.

Answers and effects come as on a node. Markers for this node (broker 1) are written to `written`, and markers for others
wait in `requests` until a test answers them.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from pykbroker.config.load import load
from pykbroker.coordinator.transaction import records
from pykbroker.coordinator.transaction.marker_writer import Marker
from pykbroker.coordinator.transaction.records import TopicPartition, Transaction, transaction_record
from pykbroker.coordinator.transaction.service import TransactionService
from pykbroker.coordinator.transaction.shard import Producer, TransactionShard
from pykbroker.metadata.features import TRANSACTION_VERSION
from pykbroker.runtime.later import Later
from pykbroker_log.partition_log import AppendOrigin
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records
from tests.coordinator.fakes import FakePartition, Replicas, World, as_replicas, as_runtime

TOPIC = "__transaction_state"
HERE = 1


class Led:
    """The part of a PartitionImage that the coordinator uses."""

    def __init__(self, leader: int) -> None:
        self.leader = leader


class Cluster:
    """The metadata: the leaders of partitions, and the transaction.version."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.finalized = {TRANSACTION_VERSION: 2}
        self.by_name: dict[str, Any] = {}
        self.image = self
        self.topics = self
        self.features = self

    def partition(self, topic: str, index: int) -> Led | None:
        leader = self.leaders.get((topic, index))
        return None if leader is None else Led(leader)


class ProducerIds:
    def __init__(self) -> None:
        self.next = 1000
        self.dry = False
        self.waiting: list[asyncio.Future[int]] = []
        self.loop: Any = None

    def take(self) -> int | asyncio.Future[int]:
        if self.dry:
            future: asyncio.Future[int] = self.loop.create_future()
            self.waiting.append(future)
            return future
        return self._fresh()

    def _fresh(self) -> int:
        self.next += 1
        return self.next - 1

    def arrive(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.dry = False
        for future in waiting:
            future.set_result(self._fresh())

    def fail(self, code: ErrorCode) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_exception(KafkaError(code))


class TransactionBench:
    def __init__(
        self,
        properties: dict[str, str] | None = None,
        previous: TransactionBench | None = None,
        *,
        start: bool = True,
        producer_ids_from: int = 0,
    ) -> None:
        config = load(
            {
                "process.roles": "broker,controller",
                "node.id": str(HERE),
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.quorum.voters": "1@localhost:9093",
                "log.dirs": "/d",
                "transaction.state.log.num.partitions": "1",
                **(properties or {}),
            }
        )
        self.config = config
        self.properties = properties
        self.world: World = World() if previous is None else previous.world
        self.loop = self.world.loop
        self.cluster: Cluster = Cluster() if previous is None else previous.cluster
        self.ids: ProducerIds = ProducerIds() if previous is None else previous.ids
        self.ids.loop = self.loop
        self.replicas = Replicas(TOPIC)
        if previous is not None:
            self.replicas.stored = previous.replicas.stored
            self.replicas.epoch = previous.replicas.epoch
        #: markers that were written on this node, and the answers to the next ones
        self.written: list[tuple[TopicPartition, Marker]] = []
        self.verdicts: dict[TopicPartition, list[ErrorCode]] = {}
        self.requests: list[tuple[int, WriteTxnMarkersRequest, asyncio.Future[Any]]] = []
        self.service = TransactionService(
            as_runtime(self.world),
            config,
            HERE,
            as_replicas(self.replicas),
            cast(Any, self.cluster),
            cast(Any, self.ids),
            self._write,
            self._send,
            producer_ids_from=producer_ids_from,
        )
        if start:
            self.service.start()
        self.partition = self.lead()

    def lead(self) -> FakePartition:
        self.partition = partition = self.replicas.lead()
        self.loop.settle()
        return partition

    def restart(self, *, start: bool = True, producer_ids_from: int = 0) -> TransactionBench:
        """Let another coordinator take over from the log. Without `start` its metadata is not complete yet."""
        self.replicas.lose()
        self.service.close()
        return TransactionBench(self.properties, self, start=start, producer_ids_from=producer_ids_from)

    @property
    def shard(self) -> TransactionShard:
        return self.service.coordinator._hosts[0].shard

    # -- the world ----------------------------------------------------------------------------------------------------

    def _write(self, partition: TopicPartition, marker: Marker) -> Later[ErrorCode]:
        verdicts = self.verdicts.get(partition)
        code = verdicts.pop(0) if verdicts else ErrorCode.NONE
        if not code:
            self.written.append((partition, marker))
        return code

    def _send(self, broker: int, request: Any, timeout_ms: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.requests.append((broker, request, future))
        return future

    def answer(self, broker: int, codes: dict[TopicPartition, ErrorCode] | None = None) -> None:
        """Answer the oldest request to a broker."""
        entry = next(each for each in self.requests if each[0] == broker)
        self.requests.remove(entry)
        _, request, future = entry
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    code = (codes or {}).get((topic.name, index), ErrorCode.NONE)
                    if not code:
                        self.written.append(
                            (
                                (topic.name, index),
                                Marker(
                                    marker.producer_id,
                                    marker.producer_epoch,
                                    marker.transaction_result,
                                    marker.coordinator_epoch,
                                    marker.transaction_version,
                                ),
                            )
                        )
                    partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        future.set_result(WriteTxnMarkersResponse(markers=results))
        self.loop.settle()

    def disconnect(self, broker: int) -> None:
        entry = next(each for each in self.requests if each[0] == broker)
        self.requests.remove(entry)
        entry[2].set_exception(ConnectionError("gone"))
        self.loop.settle()

    def leader(self, partition: TopicPartition, broker: int | None) -> None:
        """Set a partition's leader. None means that the partition is deleted."""
        if broker is None:
            self.cluster.leaders.pop(partition, None)
        else:
            self.cluster.leaders[partition] = broker
        self.service.sender.leaders_changed()
        self.loop.settle()

    def advance(self, milliseconds: int) -> None:
        self.loop.advance(milliseconds / 1000)

    # -- the log ------------------------------------------------------------------------------------------------------

    def log(self) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for batch in self.partition.log.batches:
            for position, header in iter_batches(batch):
                for record in iter_records(batch, position, header):
                    assert record.key is not None
                    value = None if record.value is None else bytes(record.value)
                    found.append((bytes(record.key), value))
        return found

    def store(self, transactional_id: str, transaction: Transaction) -> TransactionBench:
        """Write a record of an earlier coordinator, and return the bench of the next one."""
        record = transaction_record(transactional_id, transaction, self.cluster.finalized[TRANSACTION_VERSION])
        key, value = records.encode(record)
        self.partition.append(
            build_batch([(key, value, (), self.world.now_ms())]),
            required_acks=-1,
            origin=AppendOrigin.COORDINATOR,
            now_ms=self.world.now_ms(),
        )
        return self.restart()

    # -- requests -----------------------------------------------------------------------------------------------------

    def init(self, transactional_id: str, timeout_ms: int = 60_000, expected: tuple[int, int] | None = None) -> Any:
        return now(self.service.init_producer_id(transactional_id, timeout_ms, expected))

    def add(self, who: Producer, *partitions: TopicPartition, version: int = 2) -> Any:
        return now(self.service.add_partitions(who, partitions, version))

    def end(self, who: Producer, commit: bool, version: int = 2) -> Any:
        return now(self.service.end(who, commit, version))


def now(value: Any) -> Any:
    """Return the answer if it exists already, otherwise its future."""
    return value.result() if isinstance(value, asyncio.Future) and value.done() else value
