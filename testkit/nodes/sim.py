"""One node in the simulated world with a client: time moves only when a test lets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pykbroker.node.node import Node
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.records.batch import BatchHeader, build_batch, iter_batches
from pykbroker_worlds.simulated.sim_node import SimNode, recovered
from pykbroker_worlds.simulated.world import SimWorld
from testkit.simulated_clients import Client

T = TypeVar("T")
TOPIC, BROKER = 2, 4
#: The node itself does nothing while a test lets hours pass.
QUIET = {
    "metadata.max.idle.interval.ms": "0",
    "broker.heartbeat.interval.ms": "1000000",
    "broker.session.timeout.ms": "1000000000",
    "auto.leader.rebalance.enable": "false",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}


class Sim(Client):
    """A client that also holds its node."""

    def __init__(self, config: Mapping[str, str] | None = None, seed: int = 1) -> None:
        self.sim_world = SimWorld(seed)
        self.sim_node = SimNode(self.sim_world, {**QUIET, **(config or {})})
        super().__init__(self.sim_world, "client")

    def run(self, scenario: Callable[[Sim], Awaitable[T]], limit_seconds: float = 1e6) -> T:
        """Start the node if it is not running, and play."""

        async def play() -> T:
            if not self.sim_node.starts:
                await self.sim_node.start()
            return await scenario(self)

        return self.world.loop.run_until_complete(asyncio.wait_for(play(), limit_seconds))

    def close(self) -> None:
        self.world.end()

    @property
    def node(self) -> Node:
        return self.sim_node.node

    @property
    def disk(self) -> MemoryDisk:
        return self.sim_node.disk

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.node.services.replicas.get(topic, partition).log

    async def recovered(self, topic: str, partition: int = 0) -> PartitionLog:
        return await recovered(self.node.services.replicas.get(topic, partition))

    def files(self, topic: str, suffix: str = ".log", root: str = "/data") -> list[str]:
        return [name for name in self.disk.list(f"{root}/{topic}-0") if name.endswith(suffix)]

    async def try_create(
        self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1, replication: int = 1
    ) -> Any:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        return (await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics[0]

    async def create(self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1) -> None:
        answer = await self.try_create(name, configs, partitions)
        assert answer.error_code == ErrorCode.NONE, answer

    async def delete(self, name: str) -> Any:
        return (
            await self.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000))
        ).responses[0]

    async def alter(
        self, resource_type: int, name: str, values: Mapping[str, str | None], wait_seconds: float = 1
    ) -> None:
        """Send IncrementalAlterConfigs, where None removes a key; wait until the broker has it."""
        configs = [
            AlterableConfig(name=key, config_operation=int(value is None), value=value) for key, value in values.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        answer = await self.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
        await asyncio.sleep(wait_seconds)

    async def lower(self, feature: str) -> None:
        """Send UpdateFeatures to level 0."""
        update = FeatureUpdateKey(feature=feature, max_version_level=0, upgrade_type=2)
        answer = await self.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]))
        assert answer.error_code == ErrorCode.NONE, answer

    def batch(self, *values: bytes | None, key: bytes | None = None, age_ms: int = 0, **fields: Any) -> bytes:
        now_ms = self.world.now_ms() - age_ms
        return build_batch([(key, value, (), now_ms) for value in values], **fields)

    async def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Any:
        """Return a response that is not an error about metadata that is still on its way."""
        data = TopicProduceData(
            topic_id=await self.topic_id(topic), partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=[data])
        return (await self.call(request)).responses[0].partition_responses[0]

    async def send(self, topic: str, *values: bytes) -> None:
        answer = await self.produce(topic, self.batch(*values))
        assert answer.error_code == ErrorCode.NONE, answer

    async def fetch(self, topic: str, offset: int = 0, **fields: Any) -> Any:
        """Return the whole response."""
        asked = FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=-1, partition_max_bytes=1 << 26)
        defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "session_epoch": -1}
        topics = [FetchTopic(topic_id=await self.topic_id(topic), partitions=[asked])]
        return await self.call(FetchRequest(topics=topics, **{**defaults, **fields}))

    def lose_a_replica(self, topic: str, partition: int = 0) -> None:
        """Give the partition one more replica that is not in sync, as the metadata would."""
        image = self.node.loader.image.topics.by_name[topic].partitions[partition]
        wider = image._replace(replicas=(*image.replicas, 99), directories=(*image.directories, bytes(16)))
        self.node.services.replicas.get(topic, partition).update(wider)

    async def stored(self, topic: str) -> list[BatchHeader]:
        """Return the headers of the batches that a consumer gets."""
        answer = await self.fetch(topic, self.log(topic).log_start_offset)
        return [header for _, header in iter_batches(answer.responses[0].partitions[0].records or b"")]

    async def everything(self, topic: str) -> list[BatchHeader]:
        """Return the headers of all batches, as a consumer reads them one after the other."""
        found: list[BatchHeader] = []
        offset = self.log(topic).log_start_offset
        while True:
            answer = await self.fetch(topic, offset)
            headers = [header for _, header in iter_batches(answer.responses[0].partitions[0].records or b"")]
            if not headers:
                return found
            found += headers
            offset = headers[-1].next_offset


@contextmanager
def open_sims(base: Mapping[str, str] | None = None) -> Iterator[Callable[..., Sim]]:
    """`make({key: value})` makes a separate node, with `base` as further keys; all are closed at the end."""
    made: list[Sim] = []

    def make(config: Mapping[str, str] | None = None) -> Sim:
        made.append(Sim({**(base or {}), **(config or {})}))
        return made[-1]

    try:
        yield make
    finally:
        for sim in made:
            sim.close()


@contextmanager
def playing(base: Mapping[str, str] | None = None) -> Iterator[Callable[..., Any]]:
    """`play(scenario, {key: value})` runs it on a separate node, with `base` as further keys."""
    with open_sims(base) as make:
        yield lambda scenario, config=None: make(config).run(scenario)


#: `play(scenario, {key: value})` runs it on a separate node.
Play = Callable[[Callable[[Sim], Awaitable[Any]], dict[str, str]], Any]
