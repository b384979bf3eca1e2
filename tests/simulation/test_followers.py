"""Three whole nodes whose replicas follow each other, in the simulated world.

Only the controller changes the ISR here (it removes fenced brokers); ISR changes of leaders have other tests.
"""

from __future__ import annotations

import asyncio

import pytest

from pykbroker.replica.partition import Partition
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_worlds.simulated.sim_cluster import Quorum
from tests.replica.fetching.node import stored
from tests.simulation.clients.base import MOVED, Peer
from tests.simulation.stage import Stage, play

pytestmark = pytest.mark.slow

SESSIONS = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"}
TOPIC, PARTITIONS = "copied", 3


async def create(peer: Peer) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    answer = (await peer.anybody(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer


async def produce(stage: Stage, peer: Peer, index: int, *values: bytes) -> None:
    """Produce until all replicas acknowledge."""
    while True:
        leader = await peer.leader((TOPIC, index))
        batch = build_batch([(None, value, (), stage.world.now_ms()) for value in values])
        data = TopicProduceData(
            topic_id=await peer.topic_id(TOPIC), partition_data=[PartitionProduceData(index=index, records=batch)]
        )
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[data])
        answer = await peer.once(leader, request)
        code = ErrorCode.NETWORK_EXCEPTION
        if answer is not None:
            code = answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            return
        assert code in MOVED or code == ErrorCode.NETWORK_EXCEPTION, code
        peer.lost_leader((TOPIC, index))
        await peer.pause()


def copies(stage: Stage, index: int) -> list[Partition]:
    brokers = [broker for broker in stage.cluster.brokers.values() if broker.up]
    return [broker.node.services.replicas.get(TOPIC, index) for broker in brokers]


async def become_equal(stage: Stage, seconds: float = 60) -> None:
    """Wait until every replica has the same batches in the same epochs, and knows that all of them are committed."""
    end = stage.world.loop.time() + seconds
    while not all(is_equal(copies(stage, index)) for index in range(PARTITIONS)):
        assert stage.world.loop.time() < end, [
            [(stored(each), each.high_watermark) for each in copies(stage, index)] for index in range(PARTITIONS)
        ]
        await asyncio.sleep(0.1)


def is_equal(replicas: list[Partition]) -> bool:
    batches = stored(replicas[0])
    return all(stored(each) == batches and each.high_watermark == each.log.log_end_offset for each in replicas)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_followers_are_copies_and_lead_when_the_leader_is_killed(seed: int) -> None:
    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        peer = stage.peer("client")
        await create(peer)
        for number in range(20):
            for index in range(PARTITIONS):
                await produce(stage, peer, index, b"%d" % number, b"and %d" % number)
        await become_equal(stage)
        assert all(each.log.log_end_offset == 40 for index in range(PARTITIONS) for each in copies(stage, index))
        for _ in range(2):
            killed = stage.random.choice(list(cluster.brokers.values()))
            leads = [partition.index for partition in killed.led() if partition.topic == TOPIC]
            killed.kill(Survive.EVERYTHING)
            for index in leads or range(PARTITIONS):
                await produce(stage, peer, index, b"after")
            await killed.start()
            await cluster.become_whole()
            for index in range(PARTITIONS):
                await produce(stage, peer, index, b"whole again")
            await become_equal(stage)

    play(scenario, Stage(seed, 3, SESSIONS, Quorum.STATIC))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_leads_nothing_before_the_controller_has_heard_of_its_start(seed: int) -> None:
    """Until then the metadata names it as the leader of partitions whose records it has lost with the power."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        await cluster.become_whole()
        peer = stage.peer("client")
        await create(peer)
        for index in range(PARTITIONS):
            await produce(stage, peer, index, b"one", b"two")
        await become_equal(stage)
        leader = cluster.leader()
        lost = stage.random.choice([broker for broker in cluster.brokers.values() if broker is not leader])
        assert [partition for partition in lost.led() if partition.topic == TOPIC]
        unregistered = 0

        def look() -> None:
            nonlocal unregistered
            node = lost._node
            half = None if node is None or lost.starts < 2 else node._half
            if half is not None and half.lease.broker_epoch < 0:
                unregistered += 1
                assert not lost.led()

        stage.world.after_event.append(look)
        # At once: its session continues, and so does its leadership in the metadata.
        lost.kill(Survive.NOTHING)
        await lost.start()
        assert unregistered > 100
        await cluster.become_whole()
        for index in range(PARTITIONS):
            await produce(stage, peer, index, b"three")
        await become_equal(stage)
        assert all(each.log.log_end_offset == 3 for index in range(PARTITIONS) for each in copies(stage, index))

    play(scenario, Stage(seed, 3, SESSIONS, Quorum.STATIC))
