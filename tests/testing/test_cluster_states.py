"""A cluster is put back to a snapshot: acknowledged records are exact on every node, and clients live on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from pykbroker.testing import Cluster
from testkit.nodes.nodes import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.restore()
    return shared


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def leader_epochs(cluster: Cluster, topic: str) -> list[int]:
    partitions = cluster._image().topics.by_name[topic].partitions.values()
    return [partition.leader_epoch for partition in partitions]


def test_the_nodes_have_what_they_had(cluster: Cluster) -> None:
    cluster.create_topic("exact", 3)
    for number in range(9):
        cluster.produce("exact", b"%d" % number, partition=number % 3)
    addresses, before = cluster.bootstrap_servers, sorted(value or b"" for value in values(cluster, "exact"))
    epochs = leader_epochs(cluster, "exact")
    snapshot = cluster.snapshot()
    for _ in range(2):
        cluster.produce("exact", b"later")
        cluster.create_topic("later")
        cluster.restore(snapshot)
        assert cluster.bootstrap_servers == addresses
        assert cluster.running == cluster.nodes
        assert sorted(value or b"" for value in values(cluster, "exact")) == before
        assert "later" not in cluster.topics()
        assert min(leader_epochs(cluster, "exact")) > max(epochs)
        epochs = leader_epochs(cluster, "exact")
    cluster.wait_until_in_sync("exact")
    # Every replica has the same records, so each may lead.
    for node in cluster.nodes:
        cluster.move_leader("exact", 0, to=node)
        assert sorted(value or b"" for value in values(cluster, "exact")) == before


def test_a_cluster_whose_nodes_are_down_is_put_back(cluster: Cluster) -> None:
    cluster.create_topic("down")
    cluster.produce("down", b"one")
    snapshot = cluster.snapshot()
    cluster.faults.add("Produce", error="REQUEST_TIMED_OUT")
    cluster.partition_network([1], [2, 3])
    cluster.kill(2)
    cluster.pause(3)
    cluster.restore(snapshot)
    assert cluster.running == cluster.nodes
    assert cluster.paused == ()
    assert len(cluster.faults) == 0
    cluster.produce("down", b"two")
    assert values(cluster, "down") == [b"one", b"two"]
    epochs = leader_epochs(cluster, "down")
    cluster.kill()
    cluster.restore(snapshot)
    assert values(cluster, "down") == [b"one"]
    # The limits were noted before the nodes ended.
    assert min(leader_epochs(cluster, "down")) > max(epochs)


def test_a_node_that_was_down_in_the_snapshot_is_down_again_and_catches_up(cluster: Cluster) -> None:
    cluster.create_topic("lagging")
    cluster.kill(3)
    cluster.produce("lagging", b"one")
    snapshot = cluster.snapshot()
    cluster.start(3)
    cluster.wait_until_in_sync("lagging")
    cluster.restore(snapshot)
    assert cluster.running == (1, 2)
    cluster.produce("lagging", b"two")
    cluster.start(3)
    cluster.wait_until_in_sync("lagging")
    cluster.move_leader("lagging", 0, to=3)
    assert values(cluster, "lagging") == [b"one", b"two"]


def test_librdkafka_lives_on(cluster: Cluster) -> None:
    cluster.create_topic("alive")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": False})
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["alive"])
    try:
        for number in range(3):
            snapshot = cluster.snapshot()
            cluster.restore(snapshot)
            value = b"%d" % number
            producer.produce("alive", value)
            assert producer.flush(60) == 0

            def read(value: bytes = value) -> bool:
                message = consumer.poll(0.1)
                return message is not None and message.error() is None and message.value() == value

            eventually(f"the consumer reads {value!r}", read)
    finally:
        consumer.close()


def test_a_snapshot_of_a_cluster_that_is_over_or_paused_is_refused(cluster: Cluster) -> None:
    cluster.pause(2)
    with pytest.raises(RuntimeError, match="node 2 is paused"):
        cluster.snapshot()
    cluster.resume(2)
    snapshot = cluster.snapshot()
    snapshot.delete()
    with pytest.raises(ValueError, match="deleted"):
        cluster.restore(snapshot)
    cluster.kill()
    with pytest.raises(RuntimeError, match="no node"):
        cluster.snapshot()
