"""A test moves leaders and coordinators of a cluster to the nodes that it names, and clients follow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest

from pykbroker.testing import Cluster

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_each_node_in_turn_leads(cluster: Cluster) -> None:
    cluster.create_topic("turns", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for node in (2, 3, 1, 2):
        cluster.move_leader("turns", 1, to=node)
        assert cluster.leader("turns", 1) == node
        producer.produce("turns", str(node), partition=1)
        assert producer.flush(PATIENCE_SECONDS) == 0
    assert [record.value for record in cluster.records("turns", 1)] == [b"2", b"3", b"1", b"2"]
    assert set(cluster.in_sync_replicas("turns", 1)) == {1, 2, 3}


def test_a_node_without_a_replica_gets_one(cluster: Cluster) -> None:
    cluster.create_topic("single", replication_factor=1, config={"min.insync.replicas": 1})
    cluster.produce("single", b"kept")
    for node in cluster.nodes:
        cluster.move_leader("single", to=node)
        assert (cluster.leader("single"), cluster.in_sync_replicas("single")) == (node, (node,))
    assert [record.value for record in cluster.records("single")] == [b"kept"]


def test_the_coordinator_of_a_group_moves_under_its_member(cluster: Cluster) -> None:
    cluster.create_topic("jobs")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            # librdkafka asks for the new coordinator every 500 ms. A commit that it tries again before that fails with
            # the next change of the address, and this repeats until the session times out.
            "retry.backoff.ms": 1000,
            # A member that joined before it knew the topic looks for it again.
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe(["jobs"])
    try:
        for number, node in enumerate((1, 2, 3)):
            cluster.move_coordinator("workers", to=node)
            assert cluster.coordinator("workers") == node
            cluster.produce("jobs", str(number))
            message = consumer.poll(PATIENCE_SECONDS)
            while message is not None and message.error() is not None:
                # The old coordinator has refused a request, and librdkafka asks the new one.
                message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            assert message.value() == str(number).encode()
            consumer.commit(message=message, asynchronous=False)
            assert cluster.committed_offsets("workers")["jobs", 0].offset == number + 1
    finally:
        consumer.close()


def test_the_coordinator_of_a_transaction_moves_between_its_begin_and_its_end(cluster: Cluster) -> None:
    cluster.create_topic("paid")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "shop", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(PATIENCE_SECONDS)
    before = cluster.coordinator(transactional_id="shop")
    producer.begin_transaction()
    producer.produce("paid", b"once")
    assert producer.flush(PATIENCE_SECONDS) == 0
    to = next(node for node in cluster.nodes if node != before)
    cluster.move_coordinator(transactional_id="shop", to=to)
    producer.commit_transaction(PATIENCE_SECONDS)
    assert cluster.coordinator(transactional_id="shop") == to
    # A coordinator answers before the leaders of the partitions have its markers.
    assert [record.value for record in cluster.wait_for_records("paid", 1, read_committed=True)] == [b"once"]


def test_what_cannot_move(cluster: Cluster) -> None:
    cluster.create_topic("still")
    with pytest.raises(LookupError, match="there is no topic absent"):
        cluster.move_leader("absent", to=1)
    with pytest.raises(LookupError, match="still has no partition 1"):
        cluster.move_leader("still", 1, to=1)
    with pytest.raises(ValueError, match="there is no node 4"):
        cluster.move_leader("still", to=4)
    for group, transaction in ((None, None), ("a", "b")):
        with pytest.raises(TypeError, match="of a group_id or of a transactional_id"):
            cluster.coordinator(group, transactional_id=transaction)


def test_a_node_that_does_not_run_leads_nothing(cluster: Cluster) -> None:
    cluster.create_topic("lost")
    other = next(node for node in cluster.nodes if node not in (cluster.controller(), cluster.leader("lost")))
    cluster.stop(other)
    with pytest.raises(RuntimeError, match=f"node {other} is not active"):
        cluster.move_leader("lost", to=other)
    cluster.start(other)
    cluster.wait_until_in_sync()
    asyncio.run(cluster.move_leader_async("lost", to=other))
    assert cluster.leader("lost") == other
