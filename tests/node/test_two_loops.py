"""A broker loop that stands still costs its node no place in the cluster, and what it missed comes before any client.

The kit runs the same two loops as a process. A loop stands still as by a call that waits: `time.sleep` on it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pykbroker.testing.cluster import Cluster
from pykbroker.testing.embedded import Broker
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.node.wire import Wire, batch

SESSION_SECONDS = 3


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@contextmanager
def stalled(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """The loop stands still inside."""
    stands, go = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go.wait()

    loop.call_soon_threadsafe(stand)
    assert stands.wait(60)
    try:
        yield
    finally:
        go.set()


def create(address: str, name: str, replicas: int = 3) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
    with Wire(address) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        return int(answer.topics[0].error_code)


def produce(wire: Wire, value: bytes, acks: int) -> int:
    """Once."""
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(value))])
    request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])
    return int(wire.call(request, 12).responses[0].partition_responses[0].error_code)


def values(cluster: Cluster) -> list[bytes | None]:
    try:
        return [record.value for record in cluster.records("t")]
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_NOT_AVAILABLE:
            raise
        return []  # a new leader that has to catch up


def quorum_epoch(cluster: Cluster) -> int:
    return max(cluster._node(number).shared.quorum.epoch for number in cluster.running)


@pytest.mark.slow
def test_a_broker_loop_that_stands_still_costs_no_election_and_no_topic() -> None:
    """Its node is the active controller, and clients of the other nodes notice nothing of it."""
    with Cluster(nodes=3) as cluster:
        active = cluster.controller()
        assert active is not None
        other = next(number for number in cluster.nodes if number != active)
        epoch = quorum_epoch(cluster)
        node = cluster._node(active)
        with stalled(node.broker_loop):
            began = time.monotonic()
            made = 0
            # As long as a session, and longer.
            while time.monotonic() - began < 2.5 * SESSION_SECONDS:
                assert create(cluster.address(other), f"t{made}", replicas=1) == ErrorCode.NONE
                made += 1
                time.sleep(0.2)
            assert cluster.controller() == active
            assert quorum_epoch(cluster) == epoch
        with Wire(cluster.address(active)) as wire:
            topics = {topic.name for topic in wire.metadata().topics}
        assert {f"t{number}" for number in range(made)} <= topics
        assert quorum_epoch(cluster) == epoch


@pytest.mark.slow
def test_a_stall_under_a_session_fences_nobody_and_a_longer_one_does_until_it_turns() -> None:
    with Cluster(nodes=3) as cluster:
        active = cluster.controller()
        stuck = next(number for number in cluster.nodes if number != active)
        node = cluster._node(stuck)

        def is_fenced() -> bool:
            assert active is not None
            return cluster._node(active).loader.image.brokers[stuck].fenced

        incarnation = node.shared.incarnation_id
        with stalled(node.broker_loop):
            began = time.monotonic()
            while time.monotonic() - began < 0.8 * SESSION_SECONDS:
                assert not is_fenced()
                time.sleep(0.05)
            # A zombie keeps no lease.
            until(is_fenced, 2 * SESSION_SECONDS)
        until(lambda: not is_fenced())
        assert cluster._node(stuck).shared.incarnation_id == incarnation


@pytest.mark.slow
@pytest.mark.parametrize("acks", [1, -1])
def test_a_leader_that_stood_still_acknowledges_nothing_that_the_next_leader_lacks(acks: int) -> None:
    with Cluster(nodes=3, properties={"min.insync.replicas": "2"}) as cluster:
        assert create(cluster.address(1), "t") == ErrorCode.NONE
        until(lambda: cluster.leader("t") is not None and len(cluster.in_sync_replicas("t")) == 3)
        leader = cluster.leader("t")
        assert leader is not None
        with Wire(cluster.address(leader), timeout=120) as wire:
            # The leader hears of the topic a moment after the controller.
            until(lambda: produce(wire, b"before", -1) == ErrorCode.NONE)
            answers: list[int] = []
            with stalled(cluster._node(leader).broker_loop):
                # It waits in the socket, and is the first frame when the loop turns again.
                asking = threading.Thread(target=lambda: answers.append(produce(wire, b"late", acks)))
                asking.start()
                until(lambda: cluster.leader("t") not in (None, leader), 60)
            asking.join(60)
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        until(lambda: values(cluster) == [b"before"])


@pytest.mark.slow
def test_metrics_and_health_are_answered_while_the_broker_loop_stands_still() -> None:
    with Broker() as broker:
        node = broker._node
        before = broker.metrics()
        with stalled(node.broker_loop):
            until(lambda: bool(node.health().problems()))
            (problem,) = node.health().problems()
            assert problem.startswith("the broker loop has not turned for ")
            while_it_stands = broker.metrics()
        assert before.keys() <= while_it_stands.keys()
        until(lambda: not node.health().problems())
