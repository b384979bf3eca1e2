"""`ExistingCluster` and `pytest --kafka-bootstrap`: the same tests pass on pykbroker and on Apache Kafka.

Each test runs against both, so a test of the testing kit can be judged by Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from compat_tests.node import Node
from pykbroker.testing import ExistingCluster
from pykbroker_wire.errors import KafkaError
from testkit.clients import wait_until
from testkit.plugin_runs import run_pytest

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module", params=["broker", "apache_kafka"])
def outside(request: pytest.FixtureRequest) -> Iterator[ExistingCluster]:
    node: Node = request.getfixturevalue(request.param)
    with ExistingCluster(node.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test has."""
    return f"o{uuid.uuid4().hex[:10]}"


def test_topics_and_records(outside: ExistingCluster, name: str) -> None:
    assert outside.create_topic(name, 2, {"retention.ms": -1}) == name
    assert outside.topics()[name] == 2
    sent = [
        outside.produce(name, "one", key="k", headers=[("a", "b"), ("none", None)], timestamp_ms=1_700_000_000_000),
        outside.produce(name, b"two", partition=1),
        outside.produce(name, None, partition=1, key="k"),
    ]
    found = outside.wait_for_records(name, 3)
    assert sorted(found, key=lambda one: (one.partition, one.offset)) == sorted(
        sent, key=lambda one: (one.partition, one.offset)
    )
    assert outside.beginning_offsets(name) == {0: 0, 1: 0}
    assert sum(outside.end_offsets(name).values()) == 3
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        outside.create_topic(name)
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        outside.create_topic(f"{name}-2", config={"retention.ms": "x"})
    with pytest.raises(LookupError, match=f"{name} has no partition 2"):
        outside.produce(name, "three", partition=2)
    outside.delete_topic(name)
    with pytest.raises(LookupError, match=f"there is no topic {name}"):
        outside.records(name)
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        outside.delete_topic(name)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_its_offsets(outside: ExistingCluster, name: str, protocol: str) -> None:
    outside.create_topic(name)
    outside.produce(name, "one")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": outside.bootstrap_servers,
            "client.id": "reader",
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    message = consumer.poll(PATIENCE_SECONDS)
    assert message is not None
    assert message.value() == b"one"
    consumer.commit(message=message, asynchronous=False)
    group = outside.group(name)
    assert (group.type, group.state) == (protocol, "Stable")
    (member,) = group.members
    assert (member.client_id, member.assignment) == ("reader", ((name, 0),))
    assert {key: one.offset for key, one in outside.committed_offsets(name).items()} == {(name, 0): 1}
    consumer.close()
    wait_until(lambda: outside.group(name).state == "Empty", "the group is empty")
    assert group.group_id in [one.group_id for one in outside.groups()]
    with pytest.raises(LookupError, match="there is no group"):
        outside.group(f"{name}-2")
    assert outside.committed_offsets(f"{name}-2") == {}


def test_transactions(outside: ExistingCluster, name: str) -> None:
    outside.create_topic(name)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": outside.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 30_000}
    )
    producer.init_transactions(PATIENCE_SECONDS)
    for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(PATIENCE_SECONDS)
        during = outside.transaction(name)
        assert (during.state, during.partitions, during.timeout_ms) == ("Ongoing", ((name, 0),), 30_000)
        end(PATIENCE_SECONDS)
    wait_until(lambda: outside.transaction(name).state == "CompleteAbort", "the abort is complete")
    assert [one.value for one in outside.records(name)] == [b"kept", b"aborted"]
    assert [one.value for one in outside.records(name, read_committed=True)] == [b"kept"]
    assert outside.end_offsets(name, read_committed=True) == outside.end_offsets(name) == {0: 4}
    with pytest.raises(LookupError, match="there is no transactional id"):
        outside.transaction(f"{name}-2")


def test_the_same_tests_by_the_option_of_pytest(outside: ExistingCluster, tmp_path: Path) -> None:
    before = set(outside.topics())
    done = run_pytest(
        tmp_path,
        """
        from confluent_kafka import Consumer

        def test_orders(kafka_broker, kafka_topics):
            orders = kafka_topics("orders")
            kafka_broker.create_topic(orders)
            kafka_broker.produce(orders, "one")
            consumer = Consumer(
                {
                    "bootstrap.servers": kafka_broker.bootstrap_servers,
                    "group.id": kafka_topics("readers"),
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe([orders])
            assert consumer.poll(60).value() == b"one"
            consumer.close()
            assert kafka_broker.group(kafka_topics("readers")).state == "Empty"

        def test_a_fault(kafka_broker, kafka_faults):
            raise AssertionError
        """,
        *("--kafka-bootstrap", outside.bootstrap_servers),
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    # The plugin deletes the topics of a test after it.
    assert set(outside.topics()) == before
