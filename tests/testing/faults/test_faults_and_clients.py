"""The reactions of other projects' clients to injected faults: kafka-python and librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, KafkaTimeoutError, NotLeaderForPartitionError, TopicAuthorizationFailedError

import pykbroker
from pykbroker.testing import Cluster
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.wire import Closed, Wire, batch

PATIENCE_SECONDS = 120


@contextmanager
def kafka_python(broker: pykbroker.Broker | Cluster, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, **settings)
    with closing(producer):
        yield producer


class Librdkafka:
    """A producer that waits for each report."""

    def __init__(self, broker: pykbroker.Broker | Cluster, **settings: Any) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "retry.backoff.ms": 20,
                "linger.ms": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        """Return the offset. Raises KafkaException."""
        reports: list[tuple[Any, Any]] = []
        self._producer.produce(topic, value, partition=partition, callback=lambda *report: reports.append(report))
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        ((error, message),) = reports
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        offset: int = message.offset()
        return offset


@pytest.fixture
def topic(broker: pykbroker.Broker, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions."""
    name = f"{request.node.name[:60]}-{time.time_ns()}".replace("[", "-").replace("]", "")
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        wire.create(name, partitions=2)
    return name


def values(broker: pykbroker.Broker, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values in a partition."""
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        return wire.values(topic, partition)


def test_kafka_python_tries_again_when_the_leader_is_another(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    with kafka_python(broker, retries=5) as producer:
        producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
    assert (fault.matched, fault.acted) == (3, 2)
    assert values(broker, topic) == [b"one"]


def test_kafka_python_gives_up_where_it_may_not_try_again(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, partition=0, error="TOPIC_AUTHORIZATION_FAILED")
    with kafka_python(broker, enable_idempotence=False) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
        assert producer.send(topic, b"two", partition=1).get(timeout=PATIENCE_SECONDS).offset == 0
    assert values(broker, topic) == []


def test_kafka_python_without_retries_tells_of_the_error(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER")
    with (
        kafka_python(broker, retries=0, enable_idempotence=False) as producer,
        pytest.raises(NotLeaderForPartitionError),
    ):
        producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)


def test_librdkafka_tries_again_when_the_leader_is_another(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert Librdkafka(broker).send(topic, b"one") == 0
    assert fault.acted == 2
    assert values(broker, topic) == [b"one"]


def test_a_consumer_is_told_of_one_partition_and_reads_the_other(broker: pykbroker.Broker, topic: str) -> None:
    with kafka_python(broker) as producer:
        for partition in (0, 1):
            producer.send(topic, b"%d" % partition, partition=partition).get(timeout=PATIENCE_SECONDS)
    fault = broker.faults.add("Fetch", topic=topic, partition=1, error="NOT_LEADER_OR_FOLLOWER")
    settings = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(**settings, fetch_max_wait_ms=100, retry_backoff_ms=20)) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert poll(consumer, lambda found: fault.acted >= 3 and bool(found)) == [b"0"]
        fault.remove()
        assert poll(consumer, bool) == [b"1"]


def poll(consumer: KafkaConsumer, is_enough: Callable[[list[bytes]], bool]) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_enough(found):
        assert time.monotonic() < deadline
        found += [record.value for records in consumer.poll(50).values() for record in records]
    return found


@pytest.mark.slow
def test_a_delayed_answer_is_waited_for(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, delay_ms=700)
    with kafka_python(broker) as producer:
        sent_at = time.monotonic()
        future = producer.send(topic, b"one", partition=0)
        fault.wait_for(timeout_seconds=PATIENCE_SECONDS)
        future.get(timeout=PATIENCE_SECONDS)
        assert time.monotonic() - sent_at >= 0.7
    assert fault.acted == 1


@pytest.mark.slow
def test_an_answer_that_is_dropped_times_out_and_the_producer_tries_again(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, drop=True, times=1)
    producer = Librdkafka(broker, socket_timeout_ms=1000, request_timeout_ms=800, enable_idempotence=True)
    assert producer.send(topic, b"one") == 0
    assert fault.acted == 1
    assert values(broker, topic) == [b"one"]


@pytest.mark.slow
def test_an_answer_that_is_always_dropped_times_out_for_good(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, drop=True)
    with (
        kafka_python(broker, request_timeout_ms=500, delivery_timeout_ms=1200) as producer,
        pytest.raises(KafkaTimeoutError),
    ):
        producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
    broker.faults.clear()
    assert values(broker, topic) == []


@pytest.mark.slow
def test_a_connection_stays_when_an_answer_is_dropped(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Metadata", client_id="test", drop=True, times=1)
    with Wire(broker.bootstrap_servers, timeout=0.3) as wire:
        for _ in range(2):
            wire.send(MetadataRequest(topics=[]))
        fault.wait_for(2)
        with pytest.raises(TimeoutError):
            wire.read(1)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python", "librdkafka"])
@pytest.mark.parametrize("carried_out", [False, True])
def test_an_idempotent_producer_writes_once_across_a_disconnect(
    broker: pykbroker.Broker, topic: str, client: str, carried_out: bool
) -> None:
    fault = broker.faults.add("Produce", topic=topic, disconnect=True, carried_out=carried_out, times=1)
    if client == "librdkafka":
        producer = Librdkafka(broker, enable_idempotence=True)
        assert [producer.send(topic, value) for value in (b"one", b"two")] == [0, 1]
    else:
        with kafka_python(broker, enable_idempotence=True) as other:
            futures = [other.send(topic, value, partition=0) for value in (b"one", b"two")]
            assert [future.get(timeout=PATIENCE_SECONDS).offset for future in futures] == [0, 1]
    assert fault.acted == 1
    assert values(broker, topic) == [b"one", b"two"]


def test_without_idempotence_a_disconnect_after_the_append_writes_twice(broker: pykbroker.Broker, topic: str) -> None:
    """It proves that `carried_out` has an effect: without it the value is written once."""
    for carried_out, found in ((False, [b"one"]), (True, [b"two", b"two"])):
        partition = int(carried_out)
        with broker.faults.add("Produce", topic=topic, disconnect=True, carried_out=carried_out, times=1):
            producer = Librdkafka(broker, enable_idempotence=False)
            producer.send(topic, found[0], partition)
        assert values(broker, topic, partition) == found


def test_an_error_after_the_append(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", carried_out=True, times=1)
    with kafka_python(broker, enable_idempotence=True) as producer:
        assert producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS).offset == 0
    assert values(broker, topic) == [b"one"]


def test_the_nth_request_is_the_one(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, client_id="third", nth=3, error="TOPIC_AUTHORIZATION_FAILED")
    with kafka_python(broker, client_id="third", enable_idempotence=False) as producer:
        for number in (1, 2, 3, 4):
            future = producer.send(topic, b"%d" % number, partition=0)
            if number == 3:
                with pytest.raises(TopicAuthorizationFailedError):
                    future.get(timeout=PATIENCE_SECONDS)
            else:
                future.get(timeout=PATIENCE_SECONDS)
    assert fault.matched == 4
    assert values(broker, topic) == [b"1", b"2", b"4"]


def test_a_client_of_another_name_is_left_alone(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic, client_id="other", error="TOPIC_AUTHORIZATION_FAILED")
    with kafka_python(broker, client_id="this") as producer:
        producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
    assert fault.matched == 0


def test_waiting_for_a_request_that_comes_later(broker: pykbroker.Broker, topic: str) -> None:
    fault = broker.faults.add("Produce", topic=topic)
    with ThreadPoolExecutor(1) as pool, kafka_python(broker) as producer:
        waiting = pool.submit(fault.wait_for, 2, PATIENCE_SECONDS)
        for _ in range(2):
            producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
        waiting.result(timeout=PATIENCE_SECONDS)
    assert (fault.matched, fault.acted) == (2, 0)


def test_a_request_that_is_forwarded_to_the_controller(broker: pykbroker.Broker, topic: str) -> None:
    """One topic of two is refused, the other is created."""
    broker.faults.add("CreateTopics", topic=f"{topic}-no", error="POLICY_VIOLATION")
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        assert wire.try_create(f"{topic}-no", 1, 1, {}).error_code == ErrorCode.POLICY_VIOLATION
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        with pytest.raises(KafkaError):
            admin.create_topics([NewTopic(f"{topic}-{which}", 1, 1) for which in ("yes", "no")])
        names = admin.list_topics()
    assert f"{topic}-yes" in names
    assert f"{topic}-no" not in names


def test_a_changed_field_reaches_the_client(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, partition=1, change={"responses.partition_responses.base_offset": 41})
    with kafka_python(broker, enable_idempotence=False) as producer:
        futures = [producer.send(topic, b"one", partition=partition) for partition in (0, 1)]
        assert [future.get(timeout=PATIENCE_SECONDS).offset for future in futures] == [0, 41]


def test_a_change_that_a_version_cannot_say_ends_the_connection(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Metadata", client_id="test", change={"controller_id": 1 << 40})
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire, pytest.raises(Closed):
        wire.call(MetadataRequest(topics=[]))


def test_a_producer_that_wants_no_answer_is_disconnected(broker: pykbroker.Broker, topic: str) -> None:
    broker.faults.add("Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER")
    with Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=batch(b"one"))])
        wire.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 9)
        with pytest.raises(Closed):
            wire.read(1)
    assert values(broker, topic) == []


def test_an_api_versions_error_is_read_in_version_0(broker: pykbroker.Broker, topic: str) -> None:
    """librdkafka and kafka-python then ask in an older version."""
    for version in (3, 4):
        fault = broker.faults.add("ApiVersions", client_id="test", error="UNSUPPORTED_VERSION")
        with fault, Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
            answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(one.api_key, one.max_version) for one in answer.api_keys] == [(18, 5)]
    for number, send in enumerate((Librdkafka, kafka_python)):
        fault = broker.faults.add("ApiVersions", error="UNSUPPORTED_VERSION", times=1)
        if send is Librdkafka:
            assert Librdkafka(broker).send(topic, b"one") == number
        else:
            with kafka_python(broker) as producer:
                assert producer.send(topic, b"two", partition=0).get(timeout=PATIENCE_SECONDS).offset == number
        assert fault.acted == 1
    assert values(broker, topic) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("api", "error", "times"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", 2),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", 1),
        ("SyncGroup", "REBALANCE_IN_PROGRESS", 1),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", 2),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER", 1),
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 1),
    ],
)
def test_a_consumer_gets_over_the_errors_of_its_group(
    broker: pykbroker.Broker, topic: str, api: str, error: str, times: int
) -> None:
    with kafka_python(broker) as producer:
        producer.send(topic, b"one", partition=0).get(timeout=PATIENCE_SECONDS)
    fault = broker.faults.add(api, client_id="reader", error=error, times=times)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        client_id="reader",
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=20,
    )
    with closing(consumer):
        # One long poll, because if the time of a poll ends between JoinGroup and SyncGroup, kafka-python never uses its
        # assignment.
        (records,) = consumer.poll(PATIENCE_SECONDS * 1000).values()
        assert [record.value for record in records] == [b"one"]
        consumer.commit()
    assert fault.acted == times
    assert broker.committed_offsets(topic)[topic, 0].offset == 1


@pytest.mark.slow
def test_a_transaction_is_committed_once_across_a_disconnect(broker: pykbroker.Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "retry.backoff.ms": 20}
    )
    producer.init_transactions(PATIENCE_SECONDS)
    fault = broker.faults.add("EndTxn", disconnect=True, carried_out=True, times=1)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(PATIENCE_SECONDS)
    assert fault.acted == 1
    assert [record.value for record in broker.records(topic, read_committed=True)] == [b"one"]


def test_rules_outlive_a_restart() -> None:
    broker = pykbroker.Broker()
    fault = broker.faults.add("Metadata", client_id="test", error="REBOOTSTRAP_REQUIRED")
    for _ in range(2):
        with broker, Wire(broker.bootstrap_servers, timeout=PATIENCE_SECONDS) as wire:
            assert wire.call(MetadataRequest(topics=[])).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    assert fault.acted == 2


@pytest.mark.slow
def test_a_rule_of_one_node_of_a_cluster() -> None:
    with Cluster(2, record=True) as cluster:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)) as admin:
            admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2], 1: [2, 1]})])
        cluster.wait_until_in_sync("t")
        fault = cluster.faults.add("Produce", node=2, error="NOT_LEADER_OR_FOLLOWER", times=2)
        fetched = cluster.faults.add("Fetch", between_brokers=True)
        with kafka_python(cluster, retries=10) as producer:
            for partition in (0, 1):
                producer.send("t", b"%d" % partition, partition=partition).get(timeout=PATIENCE_SECONDS)
        assert fault.acted == 2
        fetched.wait_for(timeout_seconds=PATIENCE_SECONDS)
        for partition, node in ((0, 1), (1, 2)):
            with Wire(cluster.address(node), timeout=PATIENCE_SECONDS) as wire:
                assert wire.values("t", partition) == [b"%d" % partition]
        sent = cluster.requests("Produce")
        assert [(one.node, one.errors) for one in sent if one.node == 2] == [
            (2, (ErrorCode.NOT_LEADER_OR_FOLLOWER,)),
            (2, (ErrorCode.NOT_LEADER_OR_FOLLOWER,)),
            (2, ()),
        ]
        assert not cluster.requests("Fetch", client_id="broker-2-fetcher-0")


def test_a_client_survives_a_callback_that_decides_by_the_request() -> None:
    with pykbroker.Broker() as broker:
        broker.create_topic("orders")
        seen: list[str | None] = []

        def decide(request: Any) -> dict[str, Any] | None:
            seen.append(request.client_id)
            return {"error": "NOT_LEADER_OR_FOLLOWER"} if len(seen) <= 2 else None

        fault = broker.faults.add("Produce", topic="orders", callback=decide)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop", "retry.backoff.ms": 20}
        )
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        assert (seen, fault.acted) == (["shop"] * 3, 2)
        assert [record.value for record in broker.records("orders")] == [b"one"]
