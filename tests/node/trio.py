"""Three combined nodes as three processes, and what tests ask of them from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from compat_tests.ports import steady_port
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataResponsePartition
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import iter_batches
from tests.node.processes import Process, run, write_properties
from tests.node.wire import Wire

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
    """Nodes 1, 2 and 3, formatted; `with` starts them all. `settings` are those of every node."""

    def __init__(self, folder: Path, quorum: str, settings: Mapping[str, object]) -> None:
        self.folder = folder
        self.ports, self.controller_ports = _ports()
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
                    "log.dirs": self.data(number),
                    "num.partitions": 3,
                    "group.initial.rebalance.delay.ms": 0,
                    **settings,
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

    # -- nodes that come and go

    def start(self, number: int) -> Process:
        started = Process(self.folder / f"{number}.log", str(self.files[number]))
        self.running[number] = self._stack.enter_context(started)
        return started

    def kill(self, number: int) -> None:
        self.running.pop(number).kill()

    def stop(self, number: int) -> int:
        """Ask the node to stop in order. Return its exit status."""
        return self.running.pop(number).interrupt(signal.SIGTERM, PATIENCE_SECONDS)

    @contextmanager
    def paused(self, *numbers: int) -> Iterator[None]:
        """The processes stand still within the block: they keep their sockets, and do nothing."""
        for number in numbers:
            os.kill(self.running[number].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for number in numbers:
                os.kill(self.running[number].pid, signal.SIGCONT)

    # -- where they are

    def data(self, number: int) -> Path:
        return self.folder / f"data{number}"

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in NUMBERS)

    def wires(self) -> Iterator[tuple[int, Wire]]:
        for number in list(self.running):
            with Wire(self.address(number)) as wire:
                yield number, wire

    # -- what they say

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
            found = {index: partition.leader_id for index, partition in self.partitions(topic).items()}
            return found if found and min(found.values()) > 0 else None

        return eventually(f"each partition of {topic} has a leader", look)

    def partitions(self, topic: str, number: int | None = None) -> dict[int, MetadataResponsePartition]:
        """What a node says of a topic: the first that lives, unless one is named."""
        with Wire(self.address(min(self.running) if number is None else number)) as wire:
            return {partition.partition_index: partition for partition in wire.metadata(topic).topics[0].partitions}

    def in_sync(self, *topics: str) -> None:
        """All nodes live, and each of them says that every replica of these topics is in sync."""
        self.serving(*NUMBERS)

        def look() -> bool:
            for number in NUMBERS:
                for topic in topics:
                    found = self.partitions(topic, number).values()
                    whole = (set(each.isr_nodes) == set(each.replica_nodes) and each.leader_id > 0 for each in found)
                    if not found or not all(whole):
                        return False
            return True

        eventually(f"every replica of {topics} is in sync", look)

    def keys_by_coordinator(self, kind: int, prefix: str = "key") -> dict[int, str]:
        """A group, or transactional id, for each node that coordinates it."""
        found: dict[int, str] = {}
        with Wire(self.address(1)) as wire:
            for attempt in range(200):
                key = f"{prefix}-{attempt}"

                def look(key: str = key) -> int | None:
                    answer = wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
                    return answer.coordinators[0].node_id if not answer.coordinators[0].error_code else None

                found.setdefault(eventually(f"{key} has a coordinator", look), key)
                if len(found) == len(NUMBERS):
                    return found
        raise AssertionError(f"only nodes {sorted(found)} coordinate anything")

    # -- replicated topics

    def create(self, topic: str, *replicas: Sequence[int]) -> str:
        """Make a topic with these replicas of its partitions, and wait until all of them are in sync."""
        assignments = [
            CreatableReplicaAssignment(partition_index=i, broker_ids=list(r)) for i, r in enumerate(replicas)
        ]
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)
        with Wire(self.address(min(self.running))) as wire:
            answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)).topics[0]
        assert answer.error_code == ErrorCode.NONE, answer
        self.in_sync(topic)
        return topic

    def stored(self, number: int, topic: str, partition: int, end: int) -> bytes:
        """The batches below an offset, as they stand in a node's segment files."""
        folder = self.data(number) / f"{topic}-{partition}"
        data = b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))
        cut = 0
        for position, header in iter_batches(data):
            if header.base_offset >= end:
                break
            cut = position + header.size_in_bytes
        return data[:cut]

    def same_logs(self, topic: str, partition: int = 0) -> bytes:
        """Wait until all replicas hold the same bytes up to the leader's high watermark, and the leader has no more
        than that. Return these bytes."""

        ends: dict[int, list[int]] = {}

        def look() -> bytes | None:
            found = self.partitions(topic)[partition]
            with Wire(self.address(found.leader_id)) as wire:
                end = wire.fetch(topic, partition=partition, max_wait_ms=0).high_watermark
            whole = self.stored(found.leader_id, topic, partition, 1 << 62)
            held = {number: self.stored(number, topic, partition, end) for number in found.replica_nodes}
            ends.update({number: _differs_at(data, whole) for number, data in held.items()})
            return whole if set(held.values()) == {whole} else None

        try:
            return eventually(f"all replicas hold the same bytes of {topic}-{partition}", look)
        except AssertionError as error:
            error.add_note(f"where each differs from the leader, base offsets: {ends}")
            raise

    def complaints(self) -> list[str]:
        """Lines of the nodes' logs that tell of an error, or of a bug."""
        wrong = (" ERROR ", " CRITICAL ", "Traceback")
        return [
            f"node {number}: {line}"
            for number in NUMBERS
            for line in (self.folder / f"{number}.log").read_text(errors="replace").splitlines()
            if any(word in line for word in wrong)
        ]


def _differs_at(data: bytes, whole: bytes) -> list[int]:
    """The base offsets of the first batches that differ; none where the shorter log is the beginning of the other."""
    both = zip(iter_batches(data), iter_batches(whole), strict=False)
    for (at, one), (_, other) in both:
        end = at + one.size_in_bytes
        if data[at:end] != whole[at:end]:
            return [one.base_offset, other.base_offset]
    return []


def _ports() -> tuple[dict[int, int], dict[int, int]]:
    """Two ports of each node, which are free again when it comes back."""
    found: set[int] = set()
    while len(found) < len(NUMBERS):
        found.add(steady_port())
    clients = dict(zip(NUMBERS, sorted(found), strict=True))
    return clients, {number: port + 1 for number, port in clients.items()}
