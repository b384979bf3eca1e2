"""Requests of tests to the nodes of a cluster from outside, over the wire and in their files: nodes of any kind."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataResponsePartition
from pykbroker_wire.primitives import uuid_from_str, uuid_to_str
from pykbroker_wire.records.batch import iter_batches
from testkit.nodes.wire import Wire

T = TypeVar("T")
GROUP, TRANSACTION = 0, 1
PATIENCE_SECONDS = 120


def eventually(what: str, look: Callable[[], T | None], *, seconds: float = PATIENCE_SECONDS) -> T:
    """Return the result of `look` when it is true; the cluster may need time for that."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except OSError:
            # A node that starts or stops.
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, f"not after {seconds} s: {what}"
        time.sleep(0.05)


def eventually_holds(wire: Wire, topic: str, values: list[bytes]) -> None:
    """Wait until a new leader returns exactly these values. It may learn only now, from a follower, that the last
    record is committed."""
    eventually("all acknowledged records are there", lambda: wire.values(topic) == values)


class Nodes(ABC):
    """The brokers of a cluster, by node id, some of which run."""

    #: node id -> its process, for the brokers that run
    running: dict[int, Any]
    #: all brokers, running or not
    numbers: Sequence[int]

    @abstractmethod
    def address(self, number: int) -> str:
        """The address of this broker for clients."""

    @abstractmethod
    def data(self, number: int) -> Path:
        """The directory with this broker's replicas."""

    def folder_of(self, number: int, topic: str, partition: int) -> Path:
        """Return the folder of a broker's replica."""
        return self.data(number) / f"{topic}-{partition}"

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(number) for number in self.numbers)

    def living(self) -> list[int]:
        return [number for number in self.numbers if number in self.running]

    def wires(self) -> Iterator[tuple[int, Wire]]:
        for number in self.living():
            with Wire(self.address(number)) as wire:
                yield number, wire

    # -- their responses

    def active(self, *, but: int | None = None) -> int:
        """Return the active controller, by a living node."""

        def look() -> int | None:
            for _, wire in self.wires():
                topics = wire.quorum().topics
                leader: int = topics[0].partitions[0].leader_id if topics else -1
                if leader in self.running and leader != but:
                    return leader
            return None

        return eventually("a node leads the quorum", look)

    def voters(self) -> dict[int, str]:
        """Return the voters and their directories, by the active controller."""
        for _, wire in self.wires():
            topics = wire.quorum().topics
            if topics and not topics[0].partitions[0].error_code:
                voters = topics[0].partitions[0].current_voters
                return {voter.replica_id: uuid_to_str(bytes(voter.replica_directory_id)) for voter in voters}
        return {}

    def voters_are_whole(self, voters: Iterable[int]) -> bool:
        """Return True if these are the voters, and each of them has the metadata log up to the high watermark."""
        with Wire(self.address(self.living()[0])) as wire:
            (quorum,) = wire.quorum().topics[0].partitions
        ends = {voter.replica_id: voter.log_end_offset for voter in quorum.current_voters}
        return ends.keys() == set(voters) and min(ends.values()) >= quorum.high_watermark > 0

    def directory_id(self, number: int) -> bytes:
        """Return the id of the directory with this broker's replicas, from its files."""
        lines = (self.data(number) / "meta.properties").read_text().splitlines()
        return uuid_from_str(next(line.partition("=")[2] for line in lines if line.startswith("directory.id=")))

    def all_topics(self) -> list[str]:
        """Return all topics, internal ones too, by a living node."""
        with Wire(self.address(self.living()[0])) as wire:
            return [topic.name for topic in wire.metadata().topics]

    def serving(self, *numbers: int) -> None:
        """Wait until every living node names these brokers, which means that they are not fenced."""

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
        """Return a node's metadata of a topic: of the first living one, unless one is named."""
        with Wire(self.address(self.living()[0] if number is None else number)) as wire:
            return {partition.partition_index: partition for partition in wire.metadata(topic).topics[0].partitions}

    def all_say(self, what: str, topic: str, look: Callable[[dict[int, MetadataResponsePartition]], bool]) -> None:
        """Wait until `look` is true for each living node's metadata of a topic, because a tool may ask any of them."""
        eventually(what, lambda: all(look(self.partitions(topic, number)) for number in self.living()))

    def in_sync(self, *topics: str, for_seconds: float = 0.0) -> None:
        """Wait until all nodes live, and each of them has every replica of these topics in sync for this time."""
        self.serving(*self.numbers)
        began: list[float] = []

        def lasts() -> bool:
            if not look():
                began.clear()
                return False
            began.append(time.monotonic())
            return began[-1] - began[0] >= for_seconds

        def look() -> bool:
            return all(self._has_in_sync(number, topics) for number in self.numbers)

        eventually(f"every replica of {topics} is in sync", lasts)

    def _has_in_sync(self, number: int, topics: Sequence[str]) -> bool:
        """Return True if this node has every replica of these topics in sync."""
        with Wire(self.address(number)) as wire:
            found = [each.partitions for each in wire.metadata(*topics).topics] if topics else []
        return all(partitions and all(_is_in_sync(each) for each in partitions) for partitions in found)

    def keys_by_coordinator(self, kind: int, prefix: str = "key") -> dict[int, str]:
        """Return a group, or transactional id, for each node that coordinates it."""
        found: dict[int, str] = {}
        with Wire(self.address(self.living()[0])) as wire:
            for attempt in range(200):
                key = f"{prefix}-{attempt}"

                def look(key: str = key) -> int | None:
                    answer = wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
                    return answer.coordinators[0].node_id if not answer.coordinators[0].error_code else None

                found.setdefault(eventually(f"{key} has a coordinator", look), key)
                if len(found) == len(self.numbers):
                    return found
        raise AssertionError(f"only nodes {sorted(found)} coordinate anything")

    # -- replicated topics

    def create(self, topic: str, *replicas: Sequence[int]) -> str:
        """Create a topic with these replicas of its partitions, and wait until all of them are in sync."""
        assignments = [
            CreatableReplicaAssignment(partition_index=i, broker_ids=list(r)) for i, r in enumerate(replicas)
        ]
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)
        with Wire(self.address(self.living()[0])) as wire:
            answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)).topics[0]
        assert answer.error_code == ErrorCode.NONE, answer
        self.in_sync(topic)
        return topic

    def stored(self, number: int, topic: str, partition: int, end: int) -> bytes:
        """Return the batches below an offset, as they are in a node's segment files."""
        folder = self.folder_of(number, topic, partition)
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


def _is_in_sync(partition: MetadataResponsePartition) -> bool:
    return set(partition.isr_nodes) == set(partition.replica_nodes) and partition.leader_id > 0


def _differs_at(data: bytes, whole: bytes) -> list[int]:
    """Return the base offsets of the first batches that differ; none if the shorter log is the beginning of the
    other."""
    both = zip(iter_batches(data), iter_batches(whole), strict=False)
    for (at, one), (_, other) in both:
        end = at + one.size_in_bytes
        if data[at:end] != whole[at:end]:
            return [one.base_offset, other.base_offset]
    return []
