"""Our connection to another node, with Apache Kafka as the node: its broker listener and its controller listener."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from pykbroker.net.client import BrokerConnection
from pykbroker.net.versions import UnsupportedVersion
from pykbroker.runtime import OsRuntime
from pykbroker_raft import rpc
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.voters import ReplicaKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pykbroker_wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from pykbroker_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch, iter_batches
from testkit.oracle.kafka import ApacheKafka

pytestmark = pytest.mark.slow

CONTROLLERS = 2
Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["uvloop", "asyncio"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


def play(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    port: int,
    scenario: Callable[[BrokerConnection], Awaitable[None]],
) -> None:
    async def whole() -> None:
        runtime = OsRuntime(asyncio.get_running_loop())
        connection = BrokerConnection(runtime, "localhost", port, "between-nodes")
        try:
            await scenario(connection)
        finally:
            connection.close()
            runtime.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(whole())


def test_apache_kafkas_broker_listener_negotiates_and_answers(
    apache_kafka: ApacheKafka, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    name = f"between-nodes-{new_loop.__module__.partition('.')[0]}"
    records = build_batch([(None, bytes(900_000), (), 0)])

    async def scenario(connection: BrokerConnection) -> None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        created = await connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 30_000)
        assert created.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        topic_id = created.topics[0].topic_id
        partition = PartitionProduceData(index=0, records=records)
        produce = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[partition])]
        )
        while True:
            # As long as the new partition has no leader yet.
            produced = (await connection.send(produce, 30_000)).responses[0].partition_responses[0]
            if produced.error_code == ErrorCode.NONE:
                break
        # An answer of many pieces, together with small ones.
        fetch = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=10_000_000,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=10_000_000)])
            ],
        )
        named = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        fetched, cluster, metadata = await asyncio.gather(
            connection.send(fetch, 30_000),
            connection.send(DescribeClusterRequest(), 30_000),
            connection.send(named, 30_000, version=9),
        )
        found = fetched.responses[0].partitions[0].records
        assert len(found) >= 900_000
        assert [batch.record_count for _, batch in iter_batches(found)] == [1] * (produced.base_offset + 1)
        assert [broker.broker_id for broker in cluster.brokers] == [1]
        assert metadata.topics[0].name == name

    play(new_loop, apache_kafka.port, scenario)


def test_apache_kafkas_controller_listener_negotiates_and_answers(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A node of its own, because it counts the asking replica as an observer of its quorum for minutes."""

    async def scenario(connection: BrokerConnection) -> None:
        describe = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=rpc.TOPIC, partitions=[RequestPartitionData()])]
        )
        # A controller serves no Metadata: that request fails, and those around it are answered.
        answers: list[object] = await asyncio.gather(
            connection.send(describe, 30_000),
            connection.send(MetadataRequest(), 30_000),
            connection.send(DescribeClusterRequest(endpoint_type=CONTROLLERS), 30_000),
            return_exceptions=True,
        )
        quorum, metadata, cluster = answers
        assert isinstance(quorum, DescribeQuorumResponse)
        assert isinstance(metadata, UnsupportedVersion)
        assert isinstance(cluster, DescribeClusterResponse)
        assert "the peer does not serve Metadata" in str(metadata)
        partition = quorum.topics[0].partitions[0]
        assert partition.leader_id == 1
        fetch = rpc.fetch_request(
            cluster.cluster_id,
            ReplicaKey(4711, bytes(range(16))),
            partition.leader_epoch,
            OffsetAndEpoch(0, 0),
            high_watermark=0,
            max_wait_ms=500,
            max_bytes=8_000_000,
        )
        fetched = (await connection.send(fetch, 30_000)).responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.NONE
        assert sum(batch.record_count for _, batch in iter_batches(fetched.records)) > 0

    with ApacheKafka() as kafka:
        play(new_loop, kafka.controller_port, scenario)
