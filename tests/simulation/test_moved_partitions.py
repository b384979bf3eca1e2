"""Three whole nodes: the only replica of a partition moves to another broker, which is then killed."""

from __future__ import annotations

import asyncio

import pytest

from pykbroker.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.clients.reader import Reader
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

TOPIC = "moved"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_only_replica_leads_again_after_a_move_and_a_kill(seed: int) -> None:
    """The broker that the partition had left stayed in the ELR, and the partition had no leader for good."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        controller = cluster.leader()
        assert controller is not None
        old, new = (broker.number for broker in cluster.brokers.values() if broker is not controller)
        client = stage.peer("client")
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[old])],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        created = await client.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        batch = build_batch([(None, b"x", (), stage.world.now_ms())])
        data = TopicProduceData(
            topic_id=await client.topic_id(TOPIC), partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        while True:
            asked = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[data])
            answer = await client.once(old, asked)
            if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.05)

        move = ReassignableTopic(name=TOPIC, partitions=[ReassignablePartition(partition_index=0, replicas=[new])])
        moved = await client.anybody(AlterPartitionReassignmentsRequest(timeout_ms=3_000, topics=[move]))
        assert moved.responses[0].partitions[0].error_code == ErrorCode.NONE
        image = controller.node.loader
        await image.when(lambda image: partition(image).replicas == (new,))
        found = partition(image.image)
        assert (found.leader, found.isr, found.elr) == (new, (new,), ())

        cluster.brokers[new].kill(Survive.EVERYTHING)
        await image.when(lambda image: partition(image).leader == NO_LEADER)
        await cluster.brokers[new].start()
        async with asyncio.timeout(60):
            await image.when(lambda image: partition(image).leader == new)
        reader = Reader(cluster, stage.history, "reader", (TOPIC, 0), committed_only=False)
        log = await reader.whole_log()
        assert len(log) == 1

    play(scenario, Stage(seed, 3, quorum=Quorum.STATIC))


def partition(image: MetadataImage) -> PartitionImage:
    found = image.topics.partition(TOPIC, 0)
    assert found is not None
    return found
