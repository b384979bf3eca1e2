"""Three combined nodes as three processes: one cluster without replication, with foreign clients."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from testkit.nodes.nodes import GROUP, PATIENCE_SECONDS, TRANSACTION, eventually
from testkit.nodes.trio import NUMBERS, Trio
from testkit.nodes.wire import BROKER, Wire, batch

pytestmark = pytest.mark.slow

ALONE = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 6,
    "broker.session.timeout.ms": 6_000,
}


#: The nodes' properties files differ.
THREADS = {1: 8, 2: 20, 3: 50}


ONE_QUORUM = ["static", pytest.param("dynamic", marks=pytest.mark.long(amount="the same with a dynamic quorum"))]
#: for tests about the quorum itself; test_replication.py has the others of a dynamic one
BOTH_QUORUMS = ["static", "dynamic"]
each_quorum = pytest.mark.parametrize("started", BOTH_QUORUMS, indirect=True, scope="module")


@pytest.fixture(params=ONE_QUORUM, scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Trio]:
    own = {number: {"num.io.threads": threads} for number, threads in THREADS.items()}
    with Trio(tmp_path_factory.mktemp("trio"), request.param, ALONE, own) as found:
        yield found


@pytest.fixture
def trio(started: Trio) -> Iterator[Trio]:
    """The nodes are those of the tests before."""
    started.bring_back()
    before = started.complaints()
    yield started
    assert started.complaints() == before


def test_three_combined_nodes_are_one_cluster(trio: Trio) -> None:
    for number, wire in trio.wires():
        # A forwarded request is sent again if its response was lost, and the topic may exist by then.
        made = wire.try_create(f"made-by-{number}", 3, 1, {})
        assert made.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, made
    topics = [f"made-by-{number}" for number in NUMBERS]
    for topic in topics:
        assert set(trio.leaders(topic).values()) == set(NUMBERS)
    written = {value for number in NUMBERS for value in produce(trio.address(number), topics, f"plain-{number}")}
    groups = trio.keys_by_coordinator(GROUP)
    for number, group in groups.items():
        assert consume(trio.address(number % 3 + 1), topics, group, len(written)) == written
    for number, transactional_id in trio.keys_by_coordinator(TRANSACTION).items():
        # The offset goes to a coordinator on another node than the transaction's.
        written |= transact(trio.address(number), topics, transactional_id, groups[number % 3 + 1])
    for number in NUMBERS:
        assert consume(trio.address(number), topics, f"last-{number}", len(written)) == written


def test_a_broker_judges_its_new_configuration_by_its_own_file(trio: Trio) -> None:
    """This holds for each active controller: a pool of threads may at most double."""
    for number, wire in trio.wires():
        double = THREADS[number] * 2
        answer = wire.alter(BROKER, str(number), {"num.io.threads": str(double + 1)})
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message.endswith(f"double the current value {THREADS[number]}")
        answer = wire.alter(BROKER, str(number), {"num.io.threads": str(double)})
        assert answer.error_code == ErrorCode.NONE, answer.error_message
    active = trio.active()
    with Wire(f"{trio.host(active)}:{trio.controller_ports[active]}") as wire:
        # This request went to no broker, and the controller does not know the broker's file, so it only checks the
        # value.
        for number in NUMBERS:
            assert wire.alter(BROKER, str(number), {"num.io.threads": "many"}).error_code == ErrorCode.INVALID_REQUEST
            assert wire.alter(BROKER, str(number), {"num.io.threads": "1000"}).error_code == ErrorCode.NONE


def produce(address: str, topics: list[str], name: str) -> set[bytes]:
    """Produce through one node as bootstrap, to every partition."""
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    written = {f"{name}-{topic}-{partition}".encode() for topic in topics for partition in range(3)}
    for value in written:
        topic, _, partition = value.decode().removeprefix(f"{name}-").rpartition("-")
        producer.produce(topic, value, partition=int(partition))
    assert producer.flush(PATIENCE_SECONDS) == 0
    return written


def consume(address: str, topics: list[str], group: str, count: int) -> set[bytes]:
    """Return the values that a new group reads, only of committed transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(topics)
    found: set[bytes] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.add(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def transact(address: str, topics: list[str], transactional_id: str, group: str) -> set[bytes]:
    """Run one transaction over every partition with an offset of a group, and one that is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    producer.init_transactions(PATIENCE_SECONDS)
    written: set[bytes] = set()
    for kind in ("committed", "aborted"):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(3):
                value = f"{kind}-{transactional_id}-{topic}-{partition}".encode()
                producer.produce(topic, value, partition=partition)
                if kind == "committed":
                    written.add(value)
        offsets = [TopicPartition(topics[0], 0, 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_SECONDS)
        if kind == "committed":
            producer.commit_transaction(PATIENCE_SECONDS)
        else:
            producer.abort_transaction(PATIENCE_SECONDS)
    consumer.close()
    return written


@each_quorum
def test_standby_controllers_register(trio: Trio) -> None:
    for port in trio.controller_ports.values():

        def registered(port: int = port) -> bool:
            with Wire(f"127.0.0.1:{port}") as wire:
                answer = wire.call(DescribeClusterRequest(endpoint_type=2))
            found = {node.broker_id: node.port for node in answer.brokers}
            return found == trio.controller_ports and answer.controller_id == trio.active()

        eventually("every controller is registered", registered)


def test_brokers_go_on_when_the_active_controller_is_killed(trio: Trio) -> None:
    """Each node forwards CreateTopics to the present controller, and no acknowledged record is lost."""
    with Wire(trio.address(1)) as wire:
        wire.create("before", partitions=3)
    leaders = trio.leaders("before")
    for partition, leader in leaders.items():
        with Wire(trio.address(leader)) as wire:
            assert wire.produce("before", batch(b"kept"), partition=partition).error_code == ErrorCode.NONE
    active = trio.active()
    trio.kill(active)
    assert trio.active(but=active) in trio.running
    living = set(NUMBERS) - {active}
    trio.serving(*living)
    for number, wire in trio.wires():
        wire.create(f"after-{number}", partitions=2)
        assert set(trio.leaders(f"after-{number}").values()) == living
    for partition, leader in leaders.items():
        if leader in living:
            with Wire(trio.address(leader)) as wire:
                assert wire.produce("before", batch(b"more"), partition=partition).error_code == ErrorCode.NONE
    trio.start(active).ready(PATIENCE_SECONDS)
    trio.serving(*NUMBERS)
    with Wire(trio.address(active)) as wire:
        wire.create("again", partitions=1)
    for partition, leader in trio.leaders("before").items():
        with Wire(trio.address(leader)) as wire:
            expected = [b"kept"] if leader == active else [b"kept", b"more"]
            assert wire.values("before", partition) == expected


@each_quorum
def test_a_node_stops_in_a_controlled_way_whether_it_leads_or_not(trio: Trio) -> None:
    granted = "The controller has asked us to exit controlled shutdown."
    active = trio.active()
    before = trio.running[active].log.read_text().count(granted)
    assert trio.stop(active) == 0
    other = trio.active(but=active)
    trio.serving(*trio.running)
    trio.start(active).ready(PATIENCE_SECONDS)
    trio.serving(*NUMBERS)
    # It led before, and no longer does, so its own controller half cannot let it go.
    assert trio.active() == other
    stopped = trio.running.pop(active)
    assert stopped.interrupt(signal.SIGTERM, PATIENCE_SECONDS) == 0
    assert stopped.log.read_text().count(granted) == 2 + before
    trio.start(active).ready(PATIENCE_SECONDS)
    # All at once: the last has no controller, and still ends.
    ending = [trio.running.pop(number) for number in NUMBERS]
    for process in ending:
        os.kill(process.pid, signal.SIGTERM)
    assert [process.wait(PATIENCE_SECONDS) for process in ending] == [0, 0, 0]
