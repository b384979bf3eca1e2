"""Three combined nodes as three processes: one cluster without replication, by clients that others wrote."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import uuid_to_str
from tests.node.processes import Process, run, write_properties
from tests.node.test_two_processes import free_port
from tests.node.wire import Wire, batch

pytestmark = pytest.mark.slow

T = TypeVar("T")
NUMBERS = (1, 2, 3)
GROUP, TRANSACTION = 0, 1
PATIENCE_SECONDS = 60


def eventually(what: str, look: Callable[[], T | None]) -> T:
    """What `look` returns when it is true; the cluster may be on its way there."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            found = look()
        except OSError:
            # A node that is on its way up or down.
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, f"not after {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.05)


class Trio:
    """Nodes 1, 2 and 3, formatted; `up` starts them all."""

    def __init__(self, folder: Path, quorum: str) -> None:
        self.folder = folder
        self.ports = {number: free_port() for number in NUMBERS}
        self.controller_ports = {number: free_port() for number in NUMBERS}
        self.running: dict[int, Process] = {}
        self._stack = ExitStack()
        addresses = {number: f"127.0.0.1:{port}" for number, port in self.controller_ports.items()}
        if quorum == "static":
            found_by = {"controller.quorum.voters": ",".join(f"{n}@{addresses[n]}" for n in NUMBERS)}
        else:
            found_by = {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
        self.files = {
            number: write_properties(
                folder / f"{number}.properties",
                {
                    "process.roles": "broker,controller",
                    "node.id": number,
                    "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]},CONTROLLER://{addresses[number]}",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": folder / f"data{number}",
                    "num.partitions": 3,
                    "offsets.topic.replication.factor": 1,
                    "offsets.topic.num.partitions": 6,
                    "transaction.state.log.replication.factor": 1,
                    "transaction.state.log.min.isr": 1,
                    "transaction.state.log.num.partitions": 6,
                    "group.initial.rebalance.delay.ms": 0,
                    "broker.session.timeout.ms": 6_000,
                    **found_by,
                },
            )
            for number in NUMBERS
        }
        # Each node is given all voters and their directories, as Apache Kafka's tool is.
        initial = [f"{number}@{addresses[number]}:{uuid_to_str(bytes([number]) * 16)}" for number in NUMBERS]
        arguments = [] if quorum == "static" else ["--initial-controllers", ",".join(initial)]
        for file in self.files.values():
            done = run("format", str(file), "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qk", *arguments)
            assert done.returncode == 0, done.stderr

    def __enter__(self) -> Trio:
        for number in NUMBERS:
            self.start(number)
        for process in self.running.values():
            process.ready(PATIENCE_SECONDS)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def start(self, number: int) -> Process:
        started = Process(self.folder / f"{number}.log", str(self.files[number]))
        self.running[number] = self._stack.enter_context(started)
        return started

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def wires(self) -> Iterator[tuple[int, Wire]]:
        for number in list(self.running):
            with Wire(self.address(number)) as wire:
                yield number, wire

    def active(self, *, but: int | None = None) -> int:
        """The active controller, as a living node says."""
        asked = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])

        def look() -> int | None:
            for _, wire in self.wires():
                topics = wire.call(DescribeQuorumRequest(topics=[asked])).topics
                leader: int = topics[0].partitions[0].leader_id if topics else -1
                if leader in self.running and leader != but:
                    return leader
            return None

        return eventually("a node leads the quorum", look)

    def serving(self, *numbers: int) -> None:
        """Every living node names these brokers, which are the ones that are not fenced."""

        def look() -> bool:
            return all(
                {broker.node_id for broker in wire.metadata().brokers} == set(numbers) for _, wire in self.wires()
            )

        eventually(f"brokers {numbers} serve", look)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker, as soon as each partition has one."""

        def look() -> dict[int, int] | None:
            with Wire(self.address(min(self.running))) as wire:
                partitions = wire.metadata(topic).topics[0].partitions
            found = {partition.partition_index: partition.leader_id for partition in partitions}
            return found if found and min(found.values()) > 0 else None

        return eventually(f"each partition of {topic} has a leader", look)

    def keys_by_coordinator(self, kind: int) -> dict[int, str]:
        """A group, or transactional id, for each node that coordinates it."""
        found: dict[int, str] = {}
        with Wire(self.address(1)) as wire:
            for attempt in range(200):
                key = f"key-{attempt}"

                def look(key: str = key) -> int | None:
                    answer = wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
                    return answer.coordinators[0].node_id if not answer.coordinators[0].error_code else None

                found.setdefault(eventually(f"{key} has a coordinator", look), key)
                if len(found) == len(NUMBERS):
                    return found
        raise AssertionError(f"only nodes {sorted(found)} coordinate anything")


@pytest.fixture(params=["static", "dynamic"])
def trio(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Trio]:
    with Trio(tmp_path, request.param) as found:
        found.serving(*NUMBERS)
        yield found


def test_b4_three_combined_nodes_are_one_cluster(trio: Trio) -> None:
    for number, wire in trio.wires():
        wire.create(f"made-by-{number}", partitions=3)
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


def produce(address: str, topics: list[str], name: str) -> set[bytes]:
    """Through one node as bootstrap, to every partition."""
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    written = {f"{name}-{topic}-{partition}".encode() for topic in topics for partition in range(3)}
    for value in written:
        topic, _, partition = value.decode().removeprefix(f"{name}-").rpartition("-")
        producer.produce(topic, value, partition=int(partition))
    assert producer.flush(PATIENCE_SECONDS) == 0
    return written


def consume(address: str, topics: list[str], group: str, count: int) -> set[bytes]:
    """What a new group reads, committed transactions only."""
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
    """One transaction over every partition with an offset of a group, and one that is aborted."""
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


def test_b7_standby_controllers_register(trio: Trio) -> None:
    for port in trio.controller_ports.values():

        def registered(port: int = port) -> bool:
            with Wire(f"127.0.0.1:{port}") as wire:
                answer = wire.call(DescribeClusterRequest(endpoint_type=2))
            found = {node.broker_id: node.port for node in answer.brokers}
            return found == trio.controller_ports and answer.controller_id == trio.active()

        eventually("every controller is registered", registered)


def test_b4_brokers_go_on_when_the_active_controller_is_killed(trio: Trio) -> None:
    """Each node passes CreateTopics on to the controller of the moment, and nothing acknowledged is lost."""
    with Wire(trio.address(1)) as wire:
        wire.create("before", partitions=3)
    leaders = trio.leaders("before")
    for partition, leader in leaders.items():
        with Wire(trio.address(leader)) as wire:
            assert wire.produce("before", batch(b"kept"), partition=partition).error_code == ErrorCode.NONE
    active = trio.active()
    trio.running.pop(active).kill()
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


def test_b4_a_node_stops_in_a_controlled_way_whether_it_leads_or_not(trio: Trio) -> None:
    granted = "The controller has asked us to exit controlled shutdown."
    active = trio.active()
    assert trio.running.pop(active).interrupt(signal.SIGTERM, PATIENCE_SECONDS) == 0
    other = trio.active(but=active)
    trio.serving(*trio.running)
    trio.start(active).ready(PATIENCE_SECONDS)
    trio.serving(*NUMBERS)
    # It led before, and does not now: its own controller half cannot let it go.
    assert trio.active() == other
    stopped = trio.running.pop(active)
    assert stopped.interrupt(signal.SIGTERM, PATIENCE_SECONDS) == 0
    assert stopped.log.read_text().count(granted) == 2
    trio.start(active).ready(PATIENCE_SECONDS)
    # All at once: the last has no controller any more, and ends all the same.
    for process in trio.running.values():
        os.kill(process.pid, signal.SIGTERM)
    assert [process.wait(PATIENCE_SECONDS) for process in trio.running.values()] == [0, 0, 0]
