"""Share groups and their state move between Apache Kafka and pykbroker, while Apache Kafka leads the consumed topics.

Node 1 is Apache Kafka. It leads the consumed topics, so its share-partition leader is the client of both share
coordinators. It coordinates the groups too, except where a test moves them. Node 2 is pykbroker; the controller is
pykbroker's, in a process of its own. Snapshots come after few updates, and redundant records are deleted each second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster, Member
from compat_tests.mixed_cluster.share_leader_moves import leaders_move
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import read_share_group_state as reading
from pykbroker_wire.messages import read_share_group_state_summary as summing
from pykbroker_wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import GROUP, eventually
from testkit.nodes.wire import GROUP as GROUP_CONFIGS
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

CONTROLLER, KAFKA, OURS = 10, 1, 2
OTHER = {KAFKA: OURS, OURS: KAFKA}
OFFSETS, SHARES = "__consumer_offsets", "__share_group_state"
SHARE = 2
EARLIEST = -2
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "4",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "2000",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
#: The answers while a coordinator is found or loads.
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@contextmanager
def brokers_of_both(
    new_cluster: NewCluster, *more: int, words: Sequence[str] = (), **options: Any
) -> Iterator[Cluster]:
    """Yield a cluster of one controller and of a broker of each kind, which has coordinators of groups and of share
    partitions. `more`: further brokers of pykbroker. `words` and `options`: those of `new_cluster`."""
    members = {
        CONTROLLER: Member("pykbroker", "controller"),
        KAFKA: Member("kafka", "broker"),
        **{number: Member("pykbroker", "broker") for number in (OURS, *more)},
    }
    with new_cluster(members, *words, **options) as made:
        made.start_all()
        made.serving(KAFKA, OURS, *more)
        until_coordinators(made)
        yield made


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    with brokers_of_both(new_cluster, settings=SETTINGS) as made:
        made.move(OFFSETS, KAFKA)
        yield made


def until_coordinators(cluster: Cluster) -> None:
    """Wait until groups and share partitions have coordinators."""
    with Wire(cluster.address(OURS)) as wire:
        for kind, key in ((GROUP, "any"), (SHARE, "any:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            eventually(f"coordinator {kind}", lambda: not wire.call(request).coordinators[0].error_code)  # noqa: B023


class Kept(NamedTuple):
    """The state of a share partition. `offsets` has delivery count and state of each offset that is not in its first
    state."""

    state_epoch: int
    leader_epoch: int
    start: int
    complete: int
    offsets: dict[int, tuple[int, int]]


class SharePartition:
    """One share partition as a broker asks for it, and a consumer that acknowledges explicitly."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.group = f"{name}:group"
        self.topic = cluster.create(name, (KAFKA, OURS))
        self.produced = 0
        with Wire(cluster.address(KAFKA)) as wire:
            self.topic_id = wire.metadata(self.topic).topics[0].topic_id
            wire.alter(GROUP_CONFIGS, self.group, {"share.auto.offset.reset": "earliest"})
        self.accepted: set[int] = set()
        self.delivered: dict[int, int] = {}
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": cluster.address(KAFKA),
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        self.consumer.subscribe([self.topic])

    def close(self) -> None:
        self.consumer.close()

    def produce(self, count: int) -> None:
        with Wire(self.cluster.address(KAFKA)) as wire:
            for _ in range(count):
                assert wire.produce(self.topic, batch(b"%d" % self.produced)).error_code == ErrorCode.NONE
                self.produced += 1

    def consume(self, count: int) -> None:
        """Produce records, and consume and accept all of them. Each fifth one is released once before. No accepted
        record may come again, and delivery counts must be exact."""
        self.produce(count)

        def all_accepted() -> bool:
            taken: list[tuple[int, bool]] = []
            for message in self.consumer.poll(1.0) or ():
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                assert offset not in self.accepted, f"{offset} was accepted and came again"
                times = self.delivered[offset] = self.delivered.get(offset, 0) + 1
                assert message.delivery_count() == times, (offset, message.delivery_count(), times)
                accepts = offset % 5 != 0 or times > 1
                self.consumer.acknowledge(message, AcknowledgeType.ACCEPT if accepts else AcknowledgeType.RELEASE)
                taken.append((offset, accepts))
            if taken:
                failed = [error for error in self.consumer.commit_sync(30.0).values() if error is not None]
                assert not failed
                self.accepted.update(offset for offset, accepts in taken if accepts)
            return len(self.accepted) == self.produced

        eventually(f"{self.produced} records of {self.topic} are accepted", all_accepted)

    def coordinator(self) -> int:
        """Return the node of the share coordinator, when both nodes return the same."""
        key = f"{self.group}:{uuid_to_str(self.topic_id)}:0"

        def look() -> int | None:
            found = set()
            for _, wire in self.cluster.wires():
                answer = wire.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])).coordinators[0]
                found.add(-1 if answer.error_code else answer.node_id)
            return found.pop() if len(found) == 1 and -1 not in found else None

        return eventually("all name the same share coordinator", look)

    def kept(self) -> Kept:
        """Return the state at its coordinator."""
        node = self.coordinator()
        short = self._ask(
            node,
            summing.ReadShareGroupStateSummaryRequest(
                group_id=self.group,
                topics=[
                    summing.ReadStateSummaryData(
                        topic_id=self.topic_id, partitions=[summing.PartitionData(partition=0, leader_epoch=-1)]
                    )
                ],
            ),
        )
        read = self._ask(
            node,
            reading.ReadShareGroupStateRequest(
                group_id=self.group,
                topics=[
                    reading.ReadStateData(
                        topic_id=self.topic_id,
                        # It fences no leader.
                        partitions=[reading.PartitionData(partition=0, leader_epoch=short.leader_epoch)],
                    )
                ],
            ),
        )
        assert (read.state_epoch, read.start_offset) == (short.state_epoch, short.start_offset)
        return Kept(
            short.state_epoch,
            short.leader_epoch,
            short.start_offset,
            short.delivery_complete_count,
            {
                offset: (each.delivery_count, each.delivery_state)
                for each in read.state_batches
                for offset in range(each.first_offset, each.last_offset + 1)
            },
        )

    def _ask(self, node: int, request: Any) -> Any:
        def look() -> Any:
            with Wire(self.cluster.address(node)) as wire:
                (topic,) = wire.call(request).results
            (found,) = topic.partitions
            if found.error_code in NOT_YET:
                return None
            assert found.error_code == ErrorCode.NONE, found
            return found

        return eventually("the share coordinator answers", look)


@pytest.fixture
def partition(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[SharePartition]:
    made = SharePartition(cluster, request.node.originalname.replace("_", "-"))
    yield made
    made.close()


def log_start(cluster: Cluster, node: int) -> int:
    """Return the first offset of the state's topic on its leader."""
    part = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=SHARES, partitions=[part])])
    with Wire(cluster.address(node)) as wire:
        offset: int = wire.call(request).topics[0].partitions[0].offset
    return offset


def pruned(cluster: Cluster, node: int, before: int) -> None:
    eventually("redundant records are deleted", lambda: log_start(cluster, node) > before)


def test_the_coordinator_moves_between_both(cluster: Cluster, partition: SharePartition) -> None:
    cluster.move(SHARES, OURS)
    partition.consume(20)
    for node in (KAFKA, OURS):
        before = partition.kept()
        cluster.move(SHARES, node)
        assert partition.coordinator() == node
        assert partition.kept() == before
        # The start is written with the next change, so the last records are states of offsets.
        assert before.offsets
        partition.consume(20)
    assert partition.kept().start >= partition.produced - 40
    assert not cluster.complaints()


def test_what_is_left_after_pruning_is_read_by_the_other(cluster: Cluster, partition: SharePartition) -> None:
    """A second group without traffic does not keep the records of the first, and keeps its state."""
    cluster.move(SHARES, OURS)
    cold = SharePartition(cluster, "cold")
    try:
        cold.consume(7)
        rest = cold.kept()
        for node in (OURS, KAFKA):
            cluster.move(SHARES, node)
            start = log_start(cluster, node)
            # So many writes cause a snapshot. It shows that there is traffic, and then the cold ones get one too.
            for _ in range(8):
                partition.consume(4)
            pruned(cluster, node, start)
            partition.consume(10)
            before = partition.kept()
            cluster.move(SHARES, OTHER[node])
            assert partition.kept() == before
            assert cold.kept() == rest
        cold.consume(5)
    finally:
        cold.close()
    assert not cluster.complaints()


def test_our_coordinator_is_killed(cluster: Cluster, partition: SharePartition) -> None:
    cluster.move(SHARES, OURS)
    partition.consume(20)
    before = partition.kept()
    cluster.in_sync(SHARES)
    cluster.kill(OURS)
    partition.consume(10)
    cluster.start(OURS)
    cluster.in_sync(SHARES, partition.topic)
    cluster.move(SHARES, OURS)
    assert partition.kept().start > before.start
    partition.consume(10)
    # The only replica in sync comes back.
    before = partition.kept()
    cluster.stop(OURS)
    cluster.start(OURS)
    cluster.in_sync(SHARES, partition.topic)
    cluster.move(SHARES, OURS)
    assert partition.kept() == before
    partition.consume(10)


def test_the_leader_is_fenced_when_it_moves(cluster: Cluster, partition: SharePartition) -> None:
    """Apache Kafka restarts. Its share-partition leader reads the state here with a higher leader epoch, and records
    that were released before come with the next count."""
    cluster.move(SHARES, OURS)
    partition.consume(12)
    before = partition.kept()
    cluster.stop(KAFKA)
    cluster.start(KAFKA)
    cluster.in_sync(SHARES, OFFSETS, partition.topic)
    cluster.move(partition.topic, KAFKA)
    cluster.move(OFFSETS, KAFKA)
    cluster.move(SHARES, OURS)
    partition.consume(12)
    after = partition.kept()
    assert after.leader_epoch > before.leader_epoch
    assert after.start > before.start


def test_the_leader_moves_between_both(cluster: Cluster) -> None:
    """Also while it is killed and restarted as a leader of pykbroker. test_share_leaders.py has the same for a leader
    of Apache Kafka."""
    leaders_move(cluster, "leaders", (OFFSETS, SHARES), moves=(OURS, KAFKA, OURS), ends=(OURS,))


# -- the coordinator of the groups ------------------------------------------------------------------------------------


@pytest.fixture
def groups_at(cluster: Cluster) -> Iterator[Callable[[int], None]]:
    """`groups_at(node)` moves the coordinator of all groups. After the test it is Apache Kafka again."""
    yield lambda node: cluster.move(OFFSETS, node)
    cluster.move(OFFSETS, KAFKA)


def described(cluster: Cluster, node: int, group: str) -> tuple[str, int, list[tuple[str, list[int]]]]:
    """Return the state, the group epoch, and the id and the partitions of each member."""

    def look() -> Any:
        with Wire(cluster.address(node)) as wire:
            (found,) = wire.call(ShareGroupDescribeRequest(group_ids=[group])).groups
        return None if found.error_code in NOT_YET else found

    found = eventually("the group is described", look)
    assert found.error_code == ErrorCode.NONE, found
    members = [
        (each.member_id, sorted(index for topic in each.assignment.topic_partitions for index in topic.partitions))
        for each in found.members
    ]
    return found.group_state, found.group_epoch, members


def test_the_group_coordinator_moves_between_both(
    cluster: Cluster, partition: SharePartition, groups_at: Callable[[int], None]
) -> None:
    """The member goes on in its group, with its partition, and the state of the partition is on either node."""
    cluster.move(SHARES, KAFKA)
    partition.consume(10)
    before = described(cluster, KAFKA, partition.group)
    assert before[0] == "Stable"
    for groups, states in ((OURS, KAFKA), (OURS, OURS), (KAFKA, OURS), (OURS, OURS), (KAFKA, KAFKA)):
        cluster.move(SHARES, states)
        groups_at(groups)
        partition.consume(10)
        assert described(cluster, groups, partition.group) == before
    assert not cluster.complaints()


@pytest.mark.parametrize("states", [OURS, KAFKA], ids=["our state", "Kafka's state"])
def test_a_group_begins_and_ends_at_our_coordinator(
    cluster: Cluster, groups_at: Callable[[int], None], states: int
) -> None:
    cluster.move(SHARES, states)
    groups_at(OURS)
    partition = SharePartition(cluster, f"begins-{states}")
    try:
        partition.consume(20)
        state, _, members = described(cluster, OURS, partition.group)
        assert (state, [partitions for _, partitions in members]) == ("Stable", [[0]])
        assert partition.kept().complete == partition.produced
    finally:
        partition.close()
    # The consumer leaves when it closes, and Apache Kafka sees the same group. At first it may describe what was
    # committed by the high watermark that it had as a follower.
    assert described(cluster, OURS, partition.group)[0] == "Empty"
    groups_at(KAFKA)
    eventually("the group is empty", lambda: described(cluster, KAFKA, partition.group)[0] == "Empty")
    assert not cluster.complaints()


def test_no_record_of_a_new_partition_is_lost(cluster: Cluster, groups_at: Callable[[int], None]) -> None:
    """A group that starts at `latest` gets the records of a new partition that came before the group knew it. With
    Apache Kafka 4.3.1 as the coordinator of the group they are never delivered."""
    cluster.move(SHARES, KAFKA)
    groups_at(OURS)
    topic = cluster.create("grows", (KAFKA, OURS))
    consumer = ShareConsumer({"bootstrap.servers": cluster.address(KAFKA), "group.id": "grows:group", "log_level": 0})
    consumer.subscribe([topic])
    taken: dict[int, set[bytes | None]] = {0: set(), 1: set()}

    def poll() -> None:
        for message in consumer.poll(0.5) or ():
            assert message.error() is None, message.error()
            partition = message.partition()
            assert partition is not None
            taken[partition].add(message.value())

    try:
        with Wire(cluster.address(KAFKA)) as wire:

            def has_begun() -> bool:
                assert wire.produce(topic, batch(b"begin")).error_code == ErrorCode.NONE
                poll()
                return bool(taken[0])

            eventually("the group has begun", has_begun)
            assignments = [CreatePartitionsAssignment(broker_ids=[KAFKA, OURS])]
            wanted = [CreatePartitionsTopic(name=topic, count=2, assignments=assignments)]
            (made,) = wire.call(CreatePartitionsRequest(topics=wanted, timeout_ms=30_000)).results
            assert made.error_code == ErrorCode.NONE, made
            values = {b"1", b"2", b"3"}
            for value in sorted(values):
                eventually(
                    "the new partition has a leader",
                    lambda: wire.produce(topic, batch(value), partition=1).error_code == ErrorCode.NONE,  # noqa: B023
                )

            def has_all() -> bool:
                poll()
                return taken[1] == values

            eventually("all records of the new partition are delivered", has_all)
    finally:
        consumer.close()
    assert not cluster.complaints()
