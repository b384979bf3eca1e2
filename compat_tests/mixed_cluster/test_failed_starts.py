"""Starts that fail before a broker is registered keep the proof of the last clean stop, as in Apache Kafka.

Two brokers and a controller of one kind, stopped in order. A broker is started without its controller, and then with
its port taken. It remains an eligible leader replica.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.members import PATIENCE_S, Cluster, Kind, Member
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import kafka_libs

BROKERS, CONTROLLER = (1, 2), 3
TOPIC = "kept"
#: A line of a broker whose controller is not there.
WAITS: dict[Kind, str] = {"kafka": "Unable to", "pykbroker": "cannot connect"}


def proof(cluster: Cluster, number: int) -> Path:
    return cluster.data(number) / ".kafka_cleanshutdown"


def partition(cluster: Cluster) -> tuple[int, set[int], set[int]]:
    """Return its leader, its ISR and its eligible leader replicas, from the first broker that runs."""
    with Wire(cluster.address(cluster.living()[0])) as wire:
        asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        found = wire.call(asked).topics[0].partitions[0]
    return found.leader_id, set(found.isr_nodes), set(found.eligible_leader_replicas or ())


@pytest.mark.long(amount="two starts that fail")
@pytest.mark.parametrize("kind", ["kafka", "pykbroker"])
def test_a_start_that_fails_leaves_the_proof_of_a_clean_stop(kind: Kind) -> None:
    kafka_libs()
    members = {number: Member(kind, "broker") for number in BROKERS} | {CONTROLLER: Member(kind, "controller")}
    with Cluster(members, settings={"min.insync.replicas": "2"}, directories=1) as cluster:
        cluster.format()
        cluster.start_all()
        cluster.serving(*BROKERS)
        cluster.create(TOPIC, BROKERS)
        with Wire(cluster.address(1)) as wire:
            assert not wire.produce(TOPIC, batch(b"kept")).error_code
        cluster.stop(2)
        eventually("the stopped broker is eligible", lambda: partition(cluster) == (1, {1}, {2}))
        cluster.stop(1)
        cluster.stop(CONTROLLER)
        assert all(proof(cluster, number).exists() for number in BROKERS)

        before = len(cluster.said(2))
        cluster.launch(2)
        eventually("broker 2 asks for its controller", lambda: WAITS[kind] in cluster.said(2)[before:])
        process = cluster.running.pop(2)
        process.ask(signal.SIGTERM)
        process.wait()
        assert proof(cluster, 2).exists()

        host, port = cluster.address(2).rsplit(":", 1)
        with socket.create_server((host, int(port))):
            cluster.launch(CONTROLLER)
            cluster.ready(CONTROLLER)
            cluster.launch(2)
            assert cluster.running.pop(2).wait() not in (0, -signal.SIGKILL)
        assert proof(cluster, 2).exists()

        # It is still eligible, so it leads alone.
        cluster.start(2)
        eventually("broker 2 leads", lambda: partition(cluster)[0] == 2, seconds=PATIENCE_S)
        cluster.start(1)
        cluster.serving(*BROKERS)
        cluster.in_sync(TOPIC)
        assert partition(cluster)[1:] == ({1, 2}, set())
        with Wire(cluster.address(partition(cluster)[0])) as wire:
            assert wire.values(TOPIC) == [b"kept"]
