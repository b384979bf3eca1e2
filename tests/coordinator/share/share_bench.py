"""A share coordinator with a simulated environment: its log, the topics of the cluster, time.

Pruning deletes whole batches from the log, and a restart loads what is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

from pykbroker.config.load import load
from pykbroker.coordinator.share import records
from pykbroker.coordinator.share.service import ShareCoordinatorService
from pykbroker.coordinator.share.shard import ShareStateShard
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.features import SHARE_VERSION
from pykbroker.metadata.topic_names import SHARE_STATE_TOPIC
from pykbroker.metadata.view import MetadataView
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_wire.stored.metadata import FeatureLevelRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.coordinator.fakes import FakePartition, Replicas, World, as_replicas, as_runtime

PRUNE_MS = 60_000
COLD_MS = 100_000


class StateReplicas(Replicas):
    def delete_records(self, topic: str, index: int, offset: int, *, may_be_internal: bool = False) -> Any:
        assert may_be_internal
        assert topic == SHARE_STATE_TOPIC
        partition = self.partitions[index]
        if offset > partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if partition.refuse is not None:
            raise KafkaError(partition.refuse)
        partition.log.delete_before(max(offset, partition.log.log_start_offset))
        return partition, offset, offset


class ShareBench:
    """`make_shard`: another shard than the real one. `previous`: the coordinator before this one."""

    def __init__(
        self,
        properties: dict[str, str] | None = None,
        make_shard: Callable[..., ShareStateShard] = ShareStateShard,
        previous: ShareBench | None = None,
    ) -> None:
        self.properties = properties or {}
        self.make_shard = make_shard
        self.world: World = World() if previous is None else previous.world
        self.loop = self.world.loop
        self.metadata: MetadataView = MetadataView() if previous is None else previous.metadata
        self.replicas = StateReplicas(SHARE_STATE_TOPIC)
        if previous is not None:
            self.replicas.stored = previous.replicas.stored
            self.replicas.epoch = previous.replicas.epoch
        config = load(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.quorum.voters": "1@localhost:9093",
                "log.dirs": "/d",
                "share.coordinator.state.topic.num.partitions": "1",
                "share.coordinator.state.topic.prune.interval.ms": str(PRUNE_MS),
                "share.coordinator.cold.partition.snapshot.interval.ms": str(COLD_MS),
                **self.properties,
            }
        )
        self.service = ShareCoordinatorService(
            as_runtime(self.world), config, as_replicas(self.replicas), self.metadata, make_shard
        )
        if previous is None:
            self.change(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))
        self.service.start()
        self.partition = self.lead()

    def lead(self) -> FakePartition:
        self.partition = partition = self.replicas.lead()
        self.loop.settle()
        return partition

    def restart(self) -> ShareBench:
        """Let another coordinator take over from the log."""
        self.replicas.lose()
        self.service.close()
        return ShareBench(self.properties, self.make_shard, self)

    @property
    def shard(self) -> ShareStateShard:
        return self.service.coordinator._hosts[0].shard

    # -- metadata -----------------------------------------------------------------------------------------------------

    def change(self, *changes: TopLevel) -> None:
        """Publish a change of the metadata."""
        old = self.metadata.image
        delta = MetadataDelta(old)
        for record in changes:
            delta.replay(record)
        self.metadata.image = delta.apply(old.offset + 1, 1)
        self.service.publish(delta, old, self.metadata.image)
        self.loop.settle()

    def create(self, topic_id: bytes, partitions: int) -> None:
        """Create a topic."""
        name = f"topic-{topic_id.hex()}"
        self.change(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
                for index in range(partitions)
            ),
        )

    def delete(self, topic_id: bytes) -> None:
        """Delete a topic."""
        self.change(RemoveTopicRecord(topic_id=topic_id))

    # -- the log ------------------------------------------------------------------------------------------------------

    def log(self) -> Iterator[tuple[int, Any, Any]]:
        """Yield offset, key and value of each record."""
        for batch in self.partition.log.batches:
            for position, header in iter_batches(batch):
                for record in iter_records(batch, position, header):
                    found = records.decode(record.key, record.value)
                    assert found is not None
                    yield record.offset, found.key, found.value


def now(value: Any) -> Any:
    """Return the answer if it exists already, otherwise its future."""
    return value.result() if isinstance(value, asyncio.Future) and value.done() else value


def answered(value: Any) -> Any:
    """Return the answer, which must exist."""
    found = now(value)
    assert not isinstance(found, asyncio.Future)
    return cast(Any, found)
