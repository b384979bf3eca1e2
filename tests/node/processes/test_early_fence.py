"""Three processes with default sessions: the effects of `kill -9` on the cluster end long before a session does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import NUMBERS, Trio
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

TOPIC = "replicated"


def write(cluster: Trio, partition: int) -> None:
    """Wait until all in-sync replicas acknowledge a record."""

    def look() -> bool:
        leader = cluster.partitions(TOPIC)[partition].leader_id
        if leader not in cluster.running:
            return False
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch(b"x"))])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        with Wire(cluster.address(leader), timeout=60) as wire:
            answer = wire.call(request, 12).responses[0].partition_responses[0]
        return bool(answer.error_code == ErrorCode.NONE)

    eventually(f"partition {partition} takes records", look)


def test_a_node_that_is_killed_is_fenced_by_its_sockets(tmp_path: Path) -> None:
    """First a broker that leads one partition and follows in two, then the active controller."""
    with Trio(tmp_path, "static", {"min.insync.replicas": 2}) as cluster:
        cluster.create(TOPIC, (1, 2, 3), (2, 3, 1), (3, 1, 2))
        for killed, is_controller in enumerate((False, True)):
            active = cluster.active()
            victim = active if is_controller else next(each for each in NUMBERS if each != active)
            cluster.kill(victim)
            for partition in range(3):
                write(cluster, partition)
            assert len(cluster.lines("before its session has timed out")) == killed + 1
            cluster.start(victim).ready(60)
            cluster.in_sync(TOPIC)
        assert not cluster.lines("because its session has timed out")
        assert not cluster.lines("until it registers again only its session fences it")
        assert not cluster.complaints()
