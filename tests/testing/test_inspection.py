"""A test reads from a broker and from a cluster what other projects' clients have done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

import pykbroker
from pykbroker.testing import Cluster
from pykbroker.testing.inspection import InspectedOffset, InspectedRecord
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.wire import Wire, batch

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker() as broker:
        yield broker


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def transact(broker: pykbroker.Broker | Cluster, topic: str, transactional_id: str) -> confluent_kafka.Producer:
    """Make a committed, an aborted and an open transaction, with one value each."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(PATIENCE_SECONDS)
    for value, end in (("kept", "commit_transaction"), ("gone", "abort_transaction"), ("open", "flush")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_SECONDS) == 0
        getattr(producer, end)()
    return producer


def test_records_are_those_that_were_sent(broker: pykbroker.Broker) -> None:
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        wire.create("sent", partitions=2)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type="gzip")) as producer:
        headers = [("a", b"1"), ("b", b"")]
        producer.send("sent", b"one", key=b"k", headers=headers, partition=1, timestamp_ms=1234)
        producer.send("sent", None, key=b"gone", partition=0, timestamp_ms=5)
        producer.flush(timeout=PATIENCE_SECONDS)
    assert broker.records("sent") == [
        InspectedRecord("sent", 0, 0, 5, b"gone", None),
        InspectedRecord("sent", 1, 0, 1234, b"k", b"one", (("a", b"1"), ("b", b""))),
    ]
    assert [record.value for record in broker.records("sent", 1)] == [b"one"]
    assert broker.topics()["sent"] == 2
    assert broker.beginning_offsets("sent") == {0: 0, 1: 0}
    assert broker.end_offsets("sent") == {0: 1, 1: 1}


def test_what_is_not_there(broker: pykbroker.Broker) -> None:
    for ask, words in (
        (lambda: broker.records("nothing"), "no topic nothing"),
        (lambda: broker.end_offsets("nothing"), "no topic nothing"),
        (lambda: broker.group("nothing"), "no group nothing"),
        (lambda: broker.transaction("nothing"), "no transactional id nothing"),
    ):
        with pytest.raises(LookupError, match=words):
            ask()
    assert broker.committed_offsets("nothing") == {}
    with pytest.raises(TimeoutError, match="has 0 records"):
        broker.wait_for_records("nothing", 1, timeout_seconds=0)
    stopped = pykbroker.Broker()
    with pytest.raises(RuntimeError, match="not running"):
        stopped.topics()


@pytest.mark.slow
def test_transactions_and_what_they_hide(broker: pykbroker.Broker) -> None:
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        wire.create("orders")
    producer = transact(broker, "orders", "till-1")
    until(lambda: broker.transaction("till-1").state == "Ongoing")
    assert [record.value for record in broker.records("orders")] == [b"kept", b"gone", b"open"]
    assert [record.value for record in broker.records("orders", read_committed=True)] == [b"kept"]
    # Two markers are between the values.
    assert broker.end_offsets("orders") == {0: 5}
    assert broker.end_offsets("orders", read_committed=True) == {0: 4}
    found = broker.transaction("till-1")
    assert found.partitions == (("orders", 0),)
    assert found.producer_id >= 0
    assert found.start_ms > 0
    producer.commit_transaction(PATIENCE_SECONDS)
    until(lambda: broker.transaction("till-1").state == "CompleteCommit")
    assert [one.transactional_id for one in broker.transactions()] == ["till-1"]
    assert [record.value for record in broker.records("orders", read_committed=True)] == [b"kept", b"open"]


def test_a_group_of_classic_members(broker: pykbroker.Broker) -> None:
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        wire.create("jobs", partitions=2)
        assert wire.produce("jobs", batch(b"one")).error_code == ErrorCode.NONE
    consumer = KafkaConsumer(
        "jobs",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="workers",
        client_id="w",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    with closing(consumer):
        # One long poll, because if the time of a poll ends between JoinGroup and SyncGroup, kafka-python never uses its
        # assignment.
        assert consumer.poll(PATIENCE_SECONDS * 1000)
        until(lambda: broker.group("workers").state == "Stable")
        group = broker.group("workers")
        assert (group.group_id, group.type, group.protocol) == ("workers", "classic", "range")
        (member,) = group.members
        assert (member.client_id, member.assignment) == ("w", (("jobs", 0), ("jobs", 1)))
        consumer.commit({TopicPartition("jobs", 1): OffsetAndMetadata(0, "begin", -1)})
        assert broker.committed_offsets("workers") == {("jobs", 1): InspectedOffset(0, "begin", -1)}
    until(lambda: broker.group("workers").state == "Empty")
    assert "workers" in [group.group_id for group in broker.groups()]


def test_a_group_of_the_new_protocol(broker: pykbroker.Broker) -> None:
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        wire.create("tasks", partitions=2)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "crew",
            "group.protocol": "consumer",
            "client.id": "c",
        }
    )
    consumer.subscribe(["tasks"])
    until(lambda: consumer.poll(0.05) is not None or len(consumer.assignment()) == 2)
    until(lambda: len(broker.group("crew").members[0].assignment) == 2)
    group = broker.group("crew")
    assert (group.type, group.protocol) == ("consumer", "uniform")
    assert [(one.client_id, one.assignment) for one in group.members] == [("c", (("tasks", 0), ("tasks", 1)))]
    consumer.close()


def test_inspection_passes_no_rule_and_no_record() -> None:
    with pykbroker.Broker(record=True) as broker:
        fault = broker.faults.add(drop=True)
        assert broker.topics() == {}
        assert broker.groups() == []
        assert broker.transactions() == []
        assert fault.matched == 0
        assert broker.requests() == []


@pytest.mark.slow
def test_a_cluster_asks_leaders_and_coordinators() -> None:
    with Cluster(3, {"auto.create.topics.enable": False}) as cluster:
        with Wire(cluster.address(1), timeout=PATIENCE_SECONDS) as wire:
            wire.create("orders", partitions=3, replication=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for partition in range(3):
            producer.produce("orders", f"p{partition}", partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert [record.value for record in cluster.wait_for_records("orders", 3)] == [b"p0", b"p1", b"p2"]
        transact(cluster, "orders", "till-2").abort_transaction(PATIENCE_SECONDS)
        consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="readers")
        with closing(consumer):
            consumer.assign([TopicPartition("orders", 2)])
            consumer.commit({TopicPartition("orders", 2): OffsetAndMetadata(1, "", -1)})
        expected = {("orders", 2): InspectedOffset(1, "", -1)}
        assert cluster.committed_offsets("readers") == expected
        victim = cluster.leader("orders", 0)
        assert victim is not None
        cluster.kill(victim)
        # The other nodes lead, and have loaded the state that it coordinated.
        values = [record.value for record in cluster.wait_for_records("orders", 4, read_committed=True)]
        assert values == [b"p0", b"kept", b"p1", b"p2"]
        until(lambda: cluster.committed_offsets("readers") == expected)
        until(lambda: [one.transactional_id for one in cluster.transactions()] == ["till-2"])
