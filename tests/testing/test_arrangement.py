"""Topics and records that a test makes without a client, as real clients find them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import pykbroker
from pykbroker.testing import Cluster, SecureBroker
from pykbroker.testing.key_partition import murmur2, partition_of
from pykbroker_wire.errors import ErrorCode, KafkaError
from testkit.nodes.wire import TOPIC, Wire

PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[pykbroker.Broker]:
    with pykbroker.Broker({"auto.create.topics.enable": False}, record=True) as broker:
        yield broker


def consumed(settings: dict[str, Any], topic: str, count: int) -> list[confluent_kafka.Message]:
    """Return so many records of a topic, as a client reads them."""
    consumer = confluent_kafka.Consumer({**settings, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), PATIENCE_SECONDS)
            assert messages, found
            found += messages
    finally:
        consumer.close()
    return found


@pytest.mark.slow
def test_a_client_finds_the_topic_and_the_records(broker: pykbroker.Broker) -> None:
    assert broker.create_topic("made", 3, {"retention.ms": 12345, "cleanup.policy": "compact"}) == "made"
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(settings)
    assert len(admin.list_topics("made", timeout=PATIENCE_SECONDS).topics["made"].partitions) == 3
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        config = wire.describe(TOPIC, "made")
    assert (config["retention.ms"].value, config["cleanup.policy"].value) == ("12345", "compact")
    sent = [
        broker.produce("made", b"one", key=b"k", headers=[("a", b"1"), ("b", "text"), ("c", None)], timestamp_ms=1000),
        broker.produce("made", "zwölf", key="clé", partition=1),
        broker.produce("made", key="gone"),
    ]
    assert sorted(broker.records("made"), key=lambda one: one.timestamp_ms) == sent
    read = {one.key(): one for one in consumed(settings, "made", 3)}
    for record in sent:
        message = read[record.key]
        assert (message.partition(), message.offset(), message.value()) == (
            record.partition,
            record.offset,
            record.value,
        )
        assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, record.timestamp_ms)
    assert read[b"k"].headers() == [("a", b"1"), ("b", b"text"), ("c", None)]
    assert read[b"gone"].value() is None


def test_a_key_has_the_partition_that_a_client_chooses(broker: pykbroker.Broker) -> None:
    broker.create_topic("keys", 7)
    chance = random.Random(7)
    keys = [chance.randbytes(size) for size in range(1, 40)]
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce("keys", b"", key=key)
    assert producer.flush(PATIENCE_SECONDS) == 0
    chosen = {record.key: record.partition for record in broker.records("keys")}
    assert {key: partition_of(key, 7) for key in keys} == chosen
    assert broker.produce("keys", b"", key=keys[0]).partition == chosen[keys[0]]


def test_murmur2_is_that_of_kafka() -> None:
    # Values of org.apache.kafka.common.utils.UtilsTest.
    assert {text: murmur2(text.encode()) - (1 << 32) * (murmur2(text.encode()) >> 31) for text in ("21", "foobar")} == {
        "21": -973932308,
        "foobar": -790332482,
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x", "config": {"retention.mss": 1}}, ErrorCode.INVALID_CONFIG),
        ({"name": "x", "config": {"retention.ms": "long"}}, ErrorCode.INVALID_CONFIG),
        ({"name": "x", "partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "x", "replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_topic_that_cannot_be(broker: pykbroker.Broker, arguments: dict[str, object], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        broker.create_topic(**arguments)  # type: ignore[arg-type]
    assert raised.value.code is code
    assert "x" not in broker.topics()


def test_a_topic_is_made_once_and_deleted_once(broker: pykbroker.Broker) -> None:
    broker.create_topic("once")
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        broker.create_topic("once")
    broker.delete_topic("once")
    assert "once" not in broker.topics()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.delete_topic("once")
    broker.create_topic("once", 2)
    assert broker.end_offsets("once") == {0: 0, 1: 0}


def test_a_record_that_cannot_be(broker: pykbroker.Broker) -> None:
    with pytest.raises(LookupError, match="there is no topic absent"):
        broker.produce("absent", b"")
    broker.create_topic("small", config={"max.message.bytes": 100})
    with pytest.raises(LookupError, match="small has no partition 1"):
        broker.produce("small", b"", partition=1)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        broker.produce("small", b"x" * 200)
    assert broker.end_offsets("small") == {0: 0}


def test_no_fault_and_no_traffic(broker: pykbroker.Broker) -> None:
    broker.faults.add("Produce", error="NOT_LEADER_OR_FOLLOWER")
    broker.faults.add("CreateTopics", disconnect=True)
    before = len(broker.requests())
    try:
        broker.create_topic("quiet")
        broker.produce("quiet", b"one")
        assert all(fault.matched == 0 for fault in broker.faults)
        assert len(broker.requests()) == before
    finally:
        broker.faults.clear()


def test_a_broker_that_does_not_run() -> None:
    broker = pykbroker.Broker()
    for make in (lambda: broker.create_topic("a"), lambda: broker.produce("a", b""), lambda: broker.delete_topic("a")):
        with pytest.raises(RuntimeError, match="the broker is not running"):
            make()


def test_a_user_without_permissions_does_not_matter() -> None:
    with SecureBroker(acls=True) as broker:
        broker.create_topic("guarded")
        broker.produce("guarded", b"one")
        settings = broker.confluent("admin")
        assert [one.value() for one in consumed(settings, "guarded", 1)] == [b"one"]


@pytest.mark.slow
def test_a_cluster_that_loses_its_controller_and_its_leader() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", 3)
        assert all(len(cluster.in_sync_replicas("orders", index)) == 3 for index in range(3))
        cluster.produce("orders", b"one", partition=1)
        for lost in {cluster.controller(), cluster.leader("orders", 1)}:
            assert lost is not None
            cluster.kill(lost)
            cluster.produce("orders", b"two", partition=1)
            cluster.create_topic(f"after-{lost}", 3)
            cluster.start(lost)
            cluster.wait_until_in_sync()
        values = [record.value for record in cluster.records("orders", 1)]
        # A record whose leader was lost may be appended twice, as by a client without idempotence.
        assert values[0] == b"one"
        assert set(values[1:]) == {b"two"}


@pytest.mark.slow
def test_a_node_that_is_cut_off_is_not_waited_for() -> None:
    with Cluster() as cluster:
        controller = cluster.controller()
        assert controller is not None
        for other in {*cluster.nodes} - {controller}:
            cluster.partition_network([other])
            topic = cluster.create_topic(f"without-{other}", config={"min.insync.replicas": 1})
            cluster.heal()
            cluster.produce(topic, b"one")
            cluster.wait_until_in_sync()


# -- asynchronous twins -----------------------------------------------------------------------------------------------


def test_a_loop_runs_on_while_records_are_awaited(broker: pykbroker.Broker) -> None:
    async def main() -> None:
        await broker.create_topic_async("awaited")
        waiting = asyncio.create_task(broker.wait_for_records_async("awaited", 2))
        # If the wait held the loop, the loop would never come to what is waited for.
        await broker.produce_async("awaited", b"one")
        await broker.produce_async("awaited", b"two")
        assert [one.value for one in await waiting] == [b"one", b"two"]
        assert await broker.records_async("awaited") == broker.records("awaited")
        with pytest.raises(TimeoutError, match="awaited has 2 records after 0 s, not 3"):
            await broker.wait_for_records_async("awaited", 3, timeout_seconds=0)
        await broker.delete_topic_async("awaited")

    asyncio.run(main())


def test_a_wait_that_is_given_up_leaves_nothing(broker: pykbroker.Broker) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await broker.wait_for_records_async("never", 1, timeout_seconds=3600)
        fault = broker.faults.add("Produce")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await fault.wait_for_async(1, timeout_seconds=3600)
        fault.remove()
        with pytest.raises(TimeoutError, match="was removed when 0 requests had matched"):
            await fault.wait_for_async()

    # `asyncio.run` joins the threads that a cancelled wait has left.
    asyncio.run(main())
