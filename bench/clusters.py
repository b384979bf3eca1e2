"""Three combined nodes of one side as three processes: replication factor 3, min.insync.replicas 2.

Both sides read the same properties, which are defaults except for `SETTINGS`; each formats its directories with its own
tool. Requests to the nodes over the wire are in testkit/nodes/nodes.py. Not here: loads and figures.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench import raw
from bench.measurements import Kind
from bench.servers import BrokerProcess, Server
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import Nodes, eventually
from testkit.nodes.wire import Wire
from testkit.ports import steady_port

NUMBERS = (1, 2, 3)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # As for a single node: a join does not wait.
    "group.initial.rebalance.delay.ms": "0",
    # Replicas of deleted topics leave the disk before the next measurements have filled it.
    "log.segment.delete.delay.ms": "5000",
}
_START_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ReplicatedTopic:
    name: str
    topic_id: bytes
    #: partition -> the address of its leader
    leaders: Mapping[int, raw.Address]


def properties_of(number: int, ports: Mapping[int, int], folder: Path) -> dict[str, str]:
    """Return the properties of a node. The controller listens on the port after the broker's."""
    controllers = {each: f"127.0.0.1:{port + 1}" for each, port in ports.items()}
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[number]},CONTROLLER://{controllers[number]}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(controllers.values()),
        "log.dirs": str(folder / "data"),
        **SETTINGS,
    }


def first_voters(ports: Mapping[int, int]) -> str:
    """Return the value of `--initial-controllers`: every voter with its directory."""
    return ",".join(
        f"{number}@127.0.0.1:{port + 1}:{uuid_to_str(bytes([number]) * 16)}" for number, port in ports.items()
    )


class Node(BrokerProcess):
    """One node of a cluster."""

    def __init__(self, side: type[Server], number: int, ports: Mapping[int, int], folder: Path) -> None:
        super().__init__(folder / str(number), ports[number])
        self._number = number
        self.become(side)
        self.directory.mkdir()
        self._properties = self.directory / "server.properties"
        values = properties_of(number, ports, self.directory)
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    def become(self, side: type[Server]) -> None:
        """Let the next start run this side's program. Both take the same properties and directories."""
        self.side = side
        self.name = f"node {self._number} of {side.name}"
        self.root = side.root

    def format(self, voters: str) -> None:
        command = self.side.formatting(self._properties, "--cluster-id", CLUSTER_ID, "--initial-controllers", voters)
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} was not formatted: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return self.side.starting(self._properties)


class Cluster(Nodes):
    """The three nodes of a side. `start` formats and starts them; `stop` ends all running nodes and removes the
    files."""

    numbers = NUMBERS

    def __init__(self, side: type[Server]) -> None:
        self.name = side.name
        self.directory = Path(tempfile.mkdtemp(prefix="pykbroker-bench-"))
        ports = _ports()
        self._voters = first_voters(ports)
        self.nodes = {number: Node(side, number, ports, self.directory) for number in NUMBERS}
        self.running: dict[int, Node] = {}
        #: topics of measurements that are finished
        self.topics: list[str] = []

    # -- addresses

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.nodes[number].port}"

    def data(self, number: int) -> Path:
        return self.nodes[number].directory / "data"

    # -- starting and stopping nodes

    def format(self) -> None:
        with ThreadPoolExecutor(len(NUMBERS)) as pool:
            list(pool.map(lambda node: node.format(self._voters), self.nodes.values()))

    def start(self) -> None:
        self.format()
        for number in NUMBERS:
            self.launch(number)
        for node in self.nodes.values():
            node.await_ready(_START_SECONDS)
        self.serving(*NUMBERS)

    def launch(self, number: int) -> None:
        """Begin to start a node."""
        self.nodes[number].launch()
        self.running[number] = self.nodes[number]

    def kill(self, number: int) -> None:
        self.running.pop(number).halt(signal.SIGKILL)

    def halt(self, number: int) -> None:
        """Ask a node to stop, and wait for its end."""
        self.running.pop(number).halt()

    def stop(self) -> None:
        for node in self.running.values():
            # These disks are no longer needed, and a controlled shutdown of the last voters never ends.
            node.halt(signal.SIGKILL)
        self.running.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- topics

    def new_topic(self, replicas: Sequence[Sequence[int]], name: str = "") -> ReplicatedTopic:
        """Create a topic with these replicas of its partitions, each led by the first, and wait until they lead."""
        name = name or f"bench-{uuid.uuid4().hex[:12]}"
        self.create(name, *replicas)
        self.topics.append(name)
        leaders = {partition: self.nodes[each[0]] for partition, each in enumerate(replicas)}
        for node in self.nodes.values():
            self.wait_until_leads(node, name, [partition for partition, leader in leaders.items() if leader is node])
        with Wire(self.address(self.living()[0])) as wire:
            topic_id = bytes(wire.metadata(name).topics[0].topic_id)
        return ReplicatedTopic(name, topic_id, {partition: node.address for partition, node in leaders.items()})

    @staticmethod
    def wait_until_leads(node: Node, topic: str, partitions: Sequence[int], timeout: float = 30) -> None:
        if partitions:
            client = raw.Client(node.address)
            client.wait_for_leaders(topic, partitions, timeout)
            client.close()

    def spread_topic(self, partitions: int) -> ReplicatedTopic:
        """Create a topic whose partitions the nodes lead in turn."""
        return self.new_topic(spread(partitions))

    def prefer(self, *topics: str) -> None:
        """Elect the preferred replica of every partition, because killed nodes no longer lead, and wait for it."""

        def led() -> bool:
            unled = []
            for topic in topics:
                found = self.partitions(topic).values()
                wrong = [each.partition_index for each in found if each.leader_id != each.replica_nodes[0]]
                unled += [TopicPartitions(topic=topic, partitions=wrong)] if wrong else []
            if unled:
                with Wire(self.address(self.living()[0]), timeout=30) as wire:
                    wire.call(ElectLeadersRequest(election_type=0, topic_partitions=unled, timeout_ms=30_000))
            return not unled

        eventually(f"the preferred replicas lead {topics}", led)

    def delete_topics(self) -> None:
        """Delete all topics of measurements."""
        if self.topics:
            topics = [DeleteTopicState(name=name) for name in self.topics]
            with Wire(self.address(self.living()[0]), timeout=60) as wire:
                answer = wire.call(DeleteTopicsRequest(topics=topics, timeout_ms=30_000), 6)
            failed = {each.name: each.error_code for each in answer.responses if each.error_code != ErrorCode.NONE}
            if failed:
                raise RuntimeError(f"{self.name}: DeleteTopics failed: {failed}")
            self.topics.clear()

    # -- figures of the operating system

    def memory(self) -> tuple[float, float]:
        """Return RssAnon and VmRSS in MB, the mean of the running nodes."""
        anonymous, resident = zip(*(node.memory() for node in self.running.values()), strict=True)
        return statistics.mean(anonymous), statistics.mean(resident)

    def cpu_seconds(self) -> float:
        """Return user and system time so far, of all running nodes."""
        return sum(node.cpu_seconds() for node in self.running.values())


def spread(partitions: int) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, so that the nodes lead and follow in turn."""
    turns = [NUMBERS[first:] + NUMBERS[:first] for first in range(len(NUMBERS))]
    return [turns[partition % len(turns)] for partition in range(partitions)]


def warm_up(cluster: Cluster, seconds: float) -> None:
    """Run the code before it is measured, because a JIT compiler optimises only then; both sides get the same load."""
    topic = cluster.spread_topic(6)
    loads = ((6, 5, 1, 100, 0.4), (3, 1, 1, 100, 0.2), (6, 5, 100, 100, 0.2), (3, 4, 90, 10_000, 0.2))
    for connections, in_flight, records, value_bytes, share in loads:
        raw.produce(
            topic.leaders,
            topic.topic_id,
            connections=connections,
            in_flight=in_flight,
            records=records,
            value_bytes=value_bytes,
            seconds=seconds * share,
        )


THREE_NODES = Kind("three nodes", Cluster, warm_up, alone=True)


def _ports() -> dict[int, int]:
    """Return a port for each node, which it keeps over restarts; the next port is the controller's."""
    found: set[int] = set()
    deadline = time.monotonic() + 30
    while len(found) < len(NUMBERS):
        assert time.monotonic() < deadline, "no free ports"
        found.add(steady_port())
    return dict(zip(NUMBERS, sorted(found), strict=True))
