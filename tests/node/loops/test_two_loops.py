"""A broker loop that stands still costs its node no place in the cluster, and missed messages come before any client.

The kit runs the same two loops as a process. A blocking call makes a loop stand still: `time.sleep` on it.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pykbroker.node.node_health import SILENT_SECONDS
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.testing.cluster import Cluster
from pykbroker.testing.embedded import Broker
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.standing_still import loop_standing_still
from tests.node.loops import standing_authorizer
from tests.node.loops.standing_authorizer import WRITE

SESSION_SECONDS = 3


def create(address: str, name: str, replicas: int = 3) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replicas)
    with Wire(address) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        return int(answer.topics[0].error_code)


def values(cluster: Cluster, topic: str = "t") -> list[bytes | None]:
    try:
        return [record.value for record in cluster.records(topic)]
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_NOT_AVAILABLE:
            raise
        return []  # a new leader that must catch up


def control_side_knows_of_another_leader(cluster: Cluster, leader: int) -> bool:
    """Return True between two turns of that loop; by then it has handed over everything that it knows."""
    node = cluster._running.node(leader)

    async def look() -> bool:
        topic = node.loader.image.topics.by_name["t"]
        return topic.partitions[0].leader not in (-1, leader)

    return asyncio.run_coroutine_threadsafe(look(), node.runtime.loop).result(60)


def quorum_epoch(cluster: Cluster) -> int:
    return max(cluster._running.node(number).shared.quorum.epoch for number in cluster.running)


@pytest.mark.slow
def test_a_broker_loop_that_stands_still_costs_no_election_and_no_topic() -> None:
    """Its node is the active controller, and clients of the other nodes notice nothing."""
    with Cluster(nodes=3) as cluster:
        active = cluster.controller()
        assert active is not None
        other = next(number for number in cluster.nodes if number != active)
        epoch = quorum_epoch(cluster)
        node = cluster._running.node(active)
        with loop_standing_still(node.broker_loop):
            began = time.monotonic()
            made = 0
            # The loop stands still for longer than a session.
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
        node = cluster._running.node(stuck)

        def is_fenced() -> bool:
            assert active is not None
            return cluster._running.node(active).loader.image.brokers[stuck].fenced

        incarnation = node.shared.incarnation_id
        with loop_standing_still(node.broker_loop):
            began = time.monotonic()
            while time.monotonic() - began < 0.8 * SESSION_SECONDS:
                assert not is_fenced()
                time.sleep(0.05)
            # A node that does not work keeps no lease.
            eventually("it is fenced", is_fenced, seconds=2 * SESSION_SECONDS)
        eventually("it takes part again", lambda: not is_fenced())
        assert cluster._running.node(stuck).shared.incarnation_id == incarnation


@pytest.mark.slow
@pytest.mark.parametrize("acks", [1, -1])
def test_a_leader_that_stood_still_acknowledges_nothing_that_the_next_leader_lacks(acks: int) -> None:
    with Cluster(nodes=3, config={"min.insync.replicas": "2"}) as cluster:
        assert create(cluster.address(1), "t") == ErrorCode.NONE
        eventually(
            "all are in sync", lambda: cluster.leader("t") is not None and len(cluster.in_sync_replicas("t")) == 3
        )
        leader = cluster.leader("t")
        assert leader is not None
        with Wire(cluster.address(leader), timeout=120) as wire:
            # The leader learns of the topic a moment after the controller.
            assert wire.produce("t", batch(b"before")).error_code == ErrorCode.NONE
            answers: list[int] = []
            with loop_standing_still(cluster._running.node(leader).broker_loop):
                # It waits in the socket, and is the first frame when the loop turns again.
                asking = threading.Thread(
                    target=lambda: answers.append(wire.produce_once("t", batch(b"late"), acks=acks).error_code)
                )
                asking.start()
                eventually("another leads", lambda: control_side_knows_of_another_leader(cluster, leader))
            asking.join(60)
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        eventually("the log is the next leader's", lambda: values(cluster) == [b"before"])


@pytest.mark.slow
def test_a_request_over_whose_authorizer_its_leader_stood_still_appends_nothing_either() -> None:
    """No frame is read after it, so the request itself must look before it appends."""
    topic = f"{WRITE}-{3 * SESSION_SECONDS}"
    with Cluster(nodes=3, config=standing_authorizer.PROPERTY) as cluster:
        assert create(cluster.address(1), topic) == ErrorCode.NONE
        eventually("all are in sync", lambda: len(cluster.in_sync_replicas(topic)) == 3)
        leader = cluster.leader(topic)
        assert leader is not None
        # The leader learns of the topic a moment after the controller.
        known = cluster._running.node(leader).services.metadata
        eventually("the leader knows it", lambda: topic in known.image.topics.by_name)
        with Wire(cluster.address(leader), timeout=120) as wire:
            assert wire.produce_once(topic, batch(b"late"), acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster.leader(topic) not in (None, leader)
        eventually("the log is empty", lambda: values(cluster, topic) == [])


@pytest.mark.slow
def test_metrics_and_health_are_answered_while_the_broker_loop_stands_still() -> None:
    with Broker() as broker:
        node = broker._node
        before = broker.metrics()
        with loop_standing_still(node.broker_loop):
            eventually("it says so", lambda: node.health().problems())
            (problem,) = node.health().problems()
            assert problem.startswith("the broker loop has not turned for ")
            while_it_stands = broker.metrics()
        assert before.keys() <= while_it_stands.keys()
        eventually("it is well again", lambda: not node.health().problems())


@pytest.mark.slow
def test_threads_that_wait_for_a_disk_keep_no_thread_of_the_control_side() -> None:
    """Eight cold reads, as many as the broker half has threads, wait while a topic is created: its record is
    flushed."""
    with Broker() as broker:
        node = broker._node
        waits = threading.Event()
        runtime = node.services.runtime

        def read() -> None:
            for _ in range(8):
                runtime.run_blocking(waits.wait)

        node.broker_loop.call_soon_threadsafe(read)
        try:
            assert create(broker.bootstrap_servers, "made", replicas=1) == ErrorCode.NONE
        finally:
            waits.set()


@pytest.mark.slow
def test_a_broker_whose_threads_end_slowly_is_not_silent_at_its_stop() -> None:
    """Its loop has ended by then and does not stand still, so the process must not end as for a silent loop."""
    with Broker() as broker:
        node = broker._node
        begun, waits = threading.Event(), threading.Event()

        def end_slowly() -> None:
            begun.set()
            waits.wait()

        node.broker_loop.call_soon_threadsafe(node.services.runtime.run_blocking, end_slowly)
        # A stop cancels calls that no thread has begun.
        assert begun.wait(60)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        eventually("it stops", lambda: node.health().broker is BrokerState.SHUTTING_DOWN)
        silent = []
        for _ in range(30):
            silent.append(node.health().broker_silent_seconds)
            time.sleep(0.1)
        assert stopping.is_alive()
        waits.set()
        stopping.join(60)
        assert max(silent) < SILENT_SECONDS
