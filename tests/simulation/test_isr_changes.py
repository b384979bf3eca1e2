"""Three whole nodes: a leader removes a follower that does not keep up from the ISR, long before its session ends."""

from __future__ import annotations

import pytest

from pykbroker.metadata.image import MetadataImage
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

TOPIC = "replicated"
SETTINGS = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "4000",
}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        controller = cluster.leader()
        assert controller is not None
        leader, lost = (broker for broker in cluster.brokers.values() if broker is not controller)
        client = stage.peer("client")
        client.only = leader.number
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
        answer = await client.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == ErrorCode.NONE
        if await client.leader((TOPIC, 0)) == lost.number:
            leader, lost = lost, leader
        elif await client.leader((TOPIC, 0)) == controller.number:
            leader, controller = controller, leader
        stage.world.network.cut_off(lost.machine)
        batch = build_batch([(None, b"x", (), stage.world.now_ms())])
        data = TopicProduceData(
            topic_id=await client.topic_id(TOPIC), partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        asked = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5_000, topic_data=[data])
        answer = await client.once(leader.number, asked)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        partition = leader.node.services.replicas.get(TOPIC, 0)
        assert partition.high_watermark == 0
        for broker in (leader, controller):
            await broker.node.services.metadata.when(lambda image: lost.number not in isr(image))
            # The controller has agreed, and it regards the follower as alive.
            assert not broker.node.loader.image.brokers[lost.number].fenced
        assert partition.high_watermark == 1
        stage.world.network.cut_off()
        await leader.node.loader.when(lambda image: sorted(isr(image)) == [1, 2, 3])

    play(scenario, Stage(seed, 3, SETTINGS, Quorum.STATIC))


def isr(image: MetadataImage) -> tuple[int, ...]:
    partition = image.topics.partition(TOPIC, 0)
    assert partition is not None
    return partition.isr
