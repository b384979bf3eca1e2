"""The partitions that a node fetches, its connections and settings, and its metrics."""

from __future__ import annotations

import errno
import socket

import pytest

from pykbroker.config.typed_config import Config
from pykbroker.replica.fetching.fetcher import Fetcher
from pykbroker.replica.fetching.manager import fetcher_of
from pykbroker.replica.follower import PartitionFollower
from pykbroker_wire.apis import ApiKey
from testkit.acting import acts
from tests.replica.fetching.leader import ModelLog, batch
from tests.replica.fetching.node import Node, led, stored

MANAGER = "kafka.server:type=ReplicaFetcherManager,name={},clientId=Replica"

# -- which partitions are fetched --------------------------------------------------------------------------------------


def test_without_a_leader_nothing_is_fetched() -> None:
    node = Node()
    partition = node.follow(leader=-1)
    node.run(5)
    assert not node.attempts
    node.world.change(partition, leader=3)
    log = led((0, 2))
    node.lead(3, partition, log, 2)
    node.settle()
    assert stored(partition) == log.contents()


def test_a_partition_that_is_deleted_or_moves_away_is_fetched_no_more() -> None:
    node = Node()
    gone, moved, stays = node.follow("gone"), node.follow("moved"), node.follow("stays")
    for partition in (gone, moved, stays):
        node.lead(2, partition, led((0, 1)), 1)
    node.settle()
    assert len(node.asked(2)) == 3
    node.world.delete("gone")
    node.world.change(moved, replicas=[2, 3], isr=[2, 3])
    node.run(2)
    assert list(node.asked(2)) == [(stays.topic_id, 0)]


def test_partitions_of_a_directory_that_fails_are_fetched_no_more() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 1))
    node.lead(2, partition, log, 1)
    node.settle()
    log.write()
    node.world.disk.fail_next("pwritev", errno.EIO)
    node.settle()
    assert partition.offline
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 1
    node.fetchers.directory_failed()
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0
    node.run(2)
    assert node.peers[2].connections[0].lost


def test_a_directory_that_fails_elsewhere_ends_the_fetches_too() -> None:
    node = Node()
    partition = node.follow()
    node.lead(2, partition, led((0, 1)), 1)
    node.settle()
    partition.handle.take_offline()
    node.fetchers.directory_failed()
    node.run(2)
    assert node.peers[2].connections[0].lost


def test_a_full_disk_is_waited_out() -> None:
    """Reads go on, and so does replication when there is room again."""
    node = Node()
    partition = node.follow()
    log = led((0, 1))
    node.lead(2, partition, log, 1)
    node.world.disk.capacity_bytes = node.world.disk.used_bytes
    node.run(3)
    assert (partition.log.log_end_offset, partition.offline) == (0, False)
    node.world.disk.capacity_bytes = 1 << 40
    node.run(3)
    assert stored(partition) == log.contents()
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0


def test_a_disk_that_is_full_in_the_middle_of_an_answer_is_waited_out() -> None:
    """Records that the log has taken already are not fetched again."""
    node = Node()
    partition = node.follow()
    log = led((0, 600))
    node.lead(2, partition, log, 1)
    size = sum(map(len, log.batches))
    node.world.disk.capacity_bytes = node.world.disk.used_bytes + size * 6 // 10
    node.run(3)
    assert 0 < partition.log.log_end_offset < 600
    node.world.disk.capacity_bytes = 1 << 40
    node.run(3)
    assert stored(partition) == log.contents()
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0


def test_a_corrupt_batch_behind_good_ones_is_asked_for_again() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 600))
    good, log.batches[500] = log.batches[500], log.batches[500][:-1] + b"?"
    node.lead(2, partition, log, 1)
    node.run(2.5)
    assert 0 < partition.log.log_end_offset <= 500
    log.batches[500] = good
    node.run(1)
    assert stored(partition) == log.contents()


def test_a_corrupt_batch_is_asked_for_again() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2))
    good, log.batches[1] = log.batches[1], log.batches[1][:-1] + b"?"
    node.lead(2, partition, log, 1)
    node.run(2.5)
    assert partition.log.log_end_offset == 0
    log.batches[1] = good
    node.run(1)
    assert stored(partition) == log.contents()


def test_a_batch_that_no_segment_takes_fails_its_partition_only() -> None:
    node = Node()
    partition = node.follow("t", segment_bytes=str(1024 * 1024))
    other = node.follow("u")
    log = ModelLog()
    log.append(batch(0, 0, bytes(2 * 1024 * 1024)))
    node.lead(2, partition, log, 1)
    node.lead(2, other, led((0, 2)), 1)
    node.run(3)
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 1
    assert (partition.log.log_end_offset, other.log.log_end_offset) == (0, 2)
    # As in Apache Kafka: until there is a new leader epoch.
    node.world.change(partition, leader=3)
    node.lead(3, partition, led((0, 1)), 2)
    node.run(3)
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0
    assert partition.log.log_end_offset == 1


def test_a_bug_under_one_partition_fails_that_partition_only(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    partition, other = node.follow("t"), node.follow("u")
    log = led((0, 2))
    node.lead(2, partition, led((0, 2)), 1)
    node.lead(2, other, log, 1)

    agree = PartitionFollower.agree

    def fails(self: PartitionFollower, high_watermark: int, log_start_offset: int) -> None:
        if self.handle is partition.handle:
            raise RuntimeError("a bug")
        agree(self, high_watermark, log_start_offset)

    monkeypatch.setattr(PartitionFollower, "agree", fails)
    node.settle()
    log.write()
    node.settle()
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 1
    assert node.metric(MANAGER.format("DeadThreadCount")) == 0
    assert stored(other) == log.contents()


def test_a_bug_of_a_fetcher_is_counted_as_a_dead_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    partition = node.follow()
    node.lead(2, partition, led((0, 2)), 1)

    def fails(*args: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Fetcher, "answered", fails)
    node.settle()
    node.run(5)
    assert node.metric(MANAGER.format("DeadThreadCount")) == 1
    assert node.peers[2].connections[0].lost


# -- connections and delays --------------------------------------------------------------------------------------------


def test_a_new_leader_epoch_ends_the_delay_and_the_pause_before_a_connection() -> None:
    node = Node(replica_fetch_backoff_ms="60000")
    partition = node.follow()
    node.refused.add(2)
    node.run(1)
    assert node.attempts == [(0.0, 2)]
    node.refused.clear()
    log = led((0, 2))
    node.lead(2, partition, log, 2)
    node.world.change(partition, leader=2)
    node.settle()
    assert node.attempts == [(0.0, 2), (1.0, 2)]
    assert stored(partition) == log.contents()


def test_a_leader_that_knows_the_epoch_later_is_asked_again() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2))
    node.lead(2, partition, log, 0)
    node.run(0.5)
    assert partition.log.log_end_offset == 0
    log.lead(1)
    node.run(1)
    assert stored(partition) == log.contents()


def test_a_leader_that_comes_back_elsewhere_is_found() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2))
    node.lead(3, partition, log, 1)
    node.addresses[2] = None
    node.run(2.5)
    assert not node.attempts
    # Broker 2 listens at the address of the model of broker 3.
    node.addresses[2] = ("host", 3)
    node.run(1)
    assert stored(partition) == log.contents()


def test_a_lost_connection_costs_the_fetch_session_and_nothing_else() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    node.settle()
    for connection in node.peers[2].connections:
        connection.transport.close()
    log.write(3)
    node.run(2)
    assert stored(partition) == log.contents()
    assert [fetch.session_epoch for fetch in node.brokers[2].fetches].count(0) == 2


# -- settings ----------------------------------------------------------------------------------------------------------


@acts(
    broker=(
        "replica.fetch.max.bytes",
        "replica.fetch.min.bytes",
        "replica.fetch.wait.max.ms",
        "replica.fetch.response.max.bytes",
    )
)
def test_what_a_fetch_asks_for() -> None:
    node = Node(
        replica_fetch_max_bytes="1000",
        replica_fetch_min_bytes="5",
        replica_fetch_wait_max_ms="250",
        replica_fetch_response_max_bytes="4000",
    )
    partition = node.follow()
    log = led((0, 100))
    node.lead(2, partition, log, 1)
    node.settle()
    request = node.brokers[2].fetches[0]
    (asked,) = request.topics[0].partitions
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (250, 5, 4000)
    assert asked.partition_max_bytes == 1000
    assert len(node.brokers[2].fetches) > 5
    assert stored(partition) == log.contents()


@acts(broker=("replica.fetch.backoff.ms",))
def test_how_long_an_error_is_waited_out() -> None:
    node = Node(replica_fetch_backoff_ms="3000")
    node.follow()
    node.refused.add(2)
    node.run(10)
    assert node.attempts == [(0.0, 2), (3.0, 2), (6.0, 2), (9.0, 2)]


@acts(broker=("replica.socket.timeout.ms",))
def test_how_long_an_answer_is_waited_for() -> None:
    node = Node(replica_socket_timeout_ms="2000")
    partition = node.follow()
    node.lead(2, partition, led((0, 1)), 1)
    # The leader answers the setup of the connection, which has a timeout of its own, but not the fetch.
    node.peers[2].held.add(ApiKey.FETCH)
    node.run(1.9)
    assert node.metric(MANAGER.format("MinFetchRate")) == 0
    assert len(node.attempts) == 1
    node.peers[2].held.clear()
    # The connection is given up, and after replica.fetch.backoff.ms there is another one.
    node.run(1.5)
    assert len(node.attempts) == 2
    assert partition.log.log_end_offset == 1


@acts(broker=("replica.socket.receive.buffer.bytes",))
def test_the_receive_buffer_of_a_fetchers_socket() -> None:
    node = Node(replica_socket_receive_buffer_bytes="100000")
    node.follow()
    node.settle()
    (pipe,) = node.pipes
    assert pipe.options == [(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)]


@acts(broker=("num.replica.fetchers",))
def test_several_fetchers_share_the_partitions_of_a_leader() -> None:
    node = Node(num_replica_fetchers="3")
    partitions = [node.follow(f"topic-{number}") for number in range(12)]
    for partition in partitions:
        node.lead(2, partition, led((0, 2)), 1)
    node.run(1)
    assert len(node.attempts) == 3
    assert all(partition.log.log_end_offset == 2 for partition in partitions)


def test_the_number_of_fetchers_changes_while_they_fetch() -> None:
    node = Node()
    partitions = [node.follow(f"topic-{number}") for number in range(12)]
    logs = [led((0, 2)) for _ in partitions]
    for partition, log in zip(partitions, logs, strict=True):
        node.lead(2, partition, log, 1)
    node.settle()

    def config(count: int) -> Config:
        return node.world.config_with({"num.replica.fetchers": str(count)})

    for count in (4, 1, 2):
        node.fetchers.reconfigure(config(count))
        for log in logs:
            log.write()
        node.run(2)
        assert len(set(node.fetchers._runner_of.values())) == count
        assert [stored(partition) for partition in partitions] == [log.contents() for log in logs]
        assert sum(not connection.lost for connection in node.peers[2].connections) == count


@pytest.mark.parametrize(
    ("topic", "index", "count", "expected"),
    # The result of Apache Kafka's Utils.abs(31 * topic.hashCode() + partition) % count.
    [("t", 0, 7, 3596 % 7), ("t", 5, 7, 3601 % 7), ("polygenelubricants", 0, 5, 0)],
)
def test_the_fetcher_of_a_partition(topic: str, index: int, count: int, expected: int) -> None:
    assert fetcher_of(topic, index, count) == expected


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_say_how_far_behind_and_how_much() -> None:
    node = Node(replica_fetch_max_bytes="100", replica_fetch_response_max_bytes="100")
    partition = node.follow()
    log = led((0, 10))
    node.lead(2, partition, log, 1)
    lag = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=ReplicaFetcherThread-0-2,topic=t,partition=0"
    node.until(lambda: partition.log.log_end_offset == 4)
    node.loop.turn()
    assert node.metric(lag) == node.metric(MANAGER.format("MaxLag")) == 6
    node.settle()
    assert (node.metric(lag), node.metric(MANAGER.format("MaxLag"))) == (0, 0)
    size = sum(map(len, log.batches))
    assert node.metric("kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec") == size
    stats = "kafka.server:type=FetcherStats,name={},clientId=ReplicaFetcherThread-0-2,brokerHost=host,brokerPort=2"
    assert node.metric(stats.format("BytesPerSec")) == size
    assert node.metric(stats.format("RequestsPerSec")) == len(node.brokers[2].fetches)
    assert node.metric(MANAGER.format("DeadThreadCount")) == 0
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0
    node.run(600)
    assert node.metric(MANAGER.format("MinFetchRate")) == pytest.approx(2, abs=0.1)
