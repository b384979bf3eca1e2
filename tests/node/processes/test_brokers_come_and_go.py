"""A fourth broker joins three nodes, takes over replicas, gives them back and leaves for good, while clients run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.describe_cluster import DescribeClusterRequest
from pykbroker_wire.messages.unregister_broker import UnregisterBrokerRequest
from testkit.nodes.load import Load
from testkit.nodes.nodes import GROUP, PATIENCE_SECONDS, TRANSACTION, eventually
from testkit.nodes.processes import write_properties
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

pytestmark = pytest.mark.slow

GUEST = 4
#: topic -> its replicas at home, and with the guest: the guest leads one and follows in the other
MOVES = {"one": ((1, 2, 3), (GUEST, 2, 3)), "two": ((2, 3, 1), (2, 3, GUEST))}


class WithGuest(Trio):
    """Three combined nodes, and a broker that comes later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "dynamic", REPLICATED)
        self.ports[GUEST] = steady_port()
        self.files[GUEST] = write_properties(
            folder / f"{GUEST}.properties",
            {
                "process.roles": "broker",
                "node.id": GUEST,
                "listeners": f"PLAINTEXT://{self.address(GUEST)}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": ",".join(
                    f"127.0.0.1:{port}" for port in self.controller_ports.values()
                ),
                "log.dirs": self.data(GUEST),
                **REPLICATED,
            },
        )
        self.format(GUEST)

    def invite(self) -> None:
        self.numbers = (*NUMBERS, GUEST)
        self.start(GUEST).ready(PATIENCE_SECONDS)
        self.serving(*self.numbers)

    def part_with_guest(self) -> None:
        """It stops in order, and the cluster unregisters it."""
        assert self.stop(GUEST) == 0
        with Wire(self.address(NUMBERS[0])) as wire:
            answer = wire.call(UnregisterBrokerRequest(broker_id=GUEST))
        assert answer.error_code == ErrorCode.NONE, answer
        self.numbers = NUMBERS


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WithGuest]:
    with WithGuest(tmp_path) as found:
        found.serving(*NUMBERS)
        yield found
        assert not found.complaints()


def reassign(cluster: WithGuest, wanted: Mapping[str, Sequence[int]]) -> None:
    topics = [
        ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=list(replicas))])
        for topic, replicas in wanted.items()
    ]
    with Wire(cluster.address(NUMBERS[0])) as wire:
        answer = wire.call(AlterPartitionReassignmentsRequest(topics=topics))
    assert {each.partitions[0].error_code for each in answer.responses} == {ErrorCode.NONE}, answer
    for topic, replicas in wanted.items():

        def moved(topic: str = topic, replicas: Sequence[int] = replicas) -> bool:
            return tuple(cluster.partitions(topic)[0].replica_nodes) == tuple(replicas)

        eventually(f"{topic} is on {replicas}", moved)
    cluster.in_sync(*wanted)


def registered(cluster: WithGuest) -> set[int]:
    """Return the registered brokers, with the fenced ones (KIP-1073)."""
    with Wire(cluster.address(NUMBERS[0])) as wire:
        answer = wire.call(DescribeClusterRequest(include_fenced_brokers=True))
    return {broker.broker_id for broker in answer.brokers}


def test_a_broker_joins_and_leaves_while_clients_run(cluster: WithGuest) -> None:
    topics = [cluster.create(topic, home) for topic, (home, _) in MOVES.items()]
    written = cluster.create("written", (3, 1, 2))
    group = cluster.keys_by_coordinator(GROUP, "group")[2]
    transactional_id = cluster.keys_by_coordinator(TRANSACTION, "id")[3]
    load = Load(cluster, topics)
    load.consume(group, "one")
    load.transact(transactional_id, written)
    with load:
        load.goes_on()
        cluster.invite()
        reassign(cluster, {topic: away for topic, (_, away) in MOVES.items()})
        assert cluster.leaders("one") == {0: GUEST}
        load.goes_on()
        reassign(cluster, {topic: home for topic, (home, _) in MOVES.items()})
        assert registered(cluster) == {*NUMBERS, GUEST}
        cluster.part_with_guest()
        eventually("the cluster forgets the guest", lambda: registered(cluster) == set(NUMBERS))
        load.goes_on()
    load.judge()
    for topic in topics:
        cluster.same_logs(topic)
        assert not (cluster.data(GUEST) / f"{topic}-0").exists()
