"""A node that follows: its fetchers, its logs, and the models that lead."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.config.load import Config
from pykbroker.replica.fetching.fetcher import Fetcher
from pykbroker.replica.fetching.manager import fetcher_of
from pykbroker.replica.follower import PartitionFollower
from pykbroker_log import names
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.apis import ApiKey
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.acting import acts
from tests.replica.fetching.leader import ModelLog, batch
from tests.replica.fetching.node import BROKER_EPOCH, Node, stored
from tests.replica.world import NODE, NOW_MS, topic
from tests.replica.world import batch as produced
from tests.storage.truncating import Threads

MANAGER = "kafka.server:type=ReplicaFetcherManager,name={},clientId=Replica"


def led(*batches_per_epoch: tuple[int, int]) -> ModelLog:
    """(epoch, how many batches were written in it)."""
    log = ModelLog()
    for epoch, count in batches_per_epoch:
        log.lead(epoch)
        log.write(count)
    log.high_watermark = log.log_end_offset
    return log


def test_a_follower_becomes_what_its_leader_is() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 3), (1, 2))
    node.lead(2, partition, log, 1)
    node.settle()
    assert stored(partition) == log.contents()
    assert (partition.log.epochs.entries(), partition.high_watermark) == ([(0, 0), (1, 3)], 5)
    log.write(4, records=3)
    node.settle()
    assert stored(partition) == log.contents()
    # The leader's high watermark may be behind the follower's end, and ahead of it.
    assert partition.high_watermark == 5
    log.high_watermark = 11
    node.settle()
    assert partition.high_watermark == 11
    log.delete_before(4)
    node.settle()
    assert partition.log.log_start_offset == 4


def test_the_fetch_names_replica_broker_epoch_and_limits() -> None:
    node = Node()
    partition = node.follow()
    node.lead(2, partition, led((0, 1)), 1)
    node.settle()
    request = node.brokers[2].fetches[0]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (NODE, BROKER_EPOCH)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    assert request.topics[0].partitions[0].partition_max_bytes == 1_048_576
    assert request.topics[0].topic_id == partition.topic_id


def test_a_log_that_went_another_way_is_cut_and_follows() -> None:
    """An unclean election: what this node wrote is not in the new leader's log."""
    node = Node()
    partition = node.follow(records=5)
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    log.write(4)
    node.settle()
    assert stored(partition) == log.contents()
    assert partition.log.epochs.entries() == [(0, 0), (1, 2)]


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_another() -> None:
    """Its epoch began at its log's end, and no other log has it: the entry goes, although nothing is cut."""
    node = Node()
    partition = node.follow(records=2)
    node.world.change(partition, leader=NODE)
    assert partition.log.epochs.entries() == [(0, 0), (2, 2)]
    node.world.change(partition, leader=3)
    log = led((0, 2))
    node.lead(3, partition, log, 3)
    log.write()
    node.settle()
    assert stored(partition) == log.contents()
    assert partition.log.epochs.entries() == [(0, 0), (3, 2)]


def test_an_empty_disk_begins_at_the_leaders_start() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 9))
    log.delete_before(6)
    node.lead(2, partition, log, 1)
    node.settle()
    assert (partition.log.log_start_offset, stored(partition)) == (6, log.contents())


def test_a_leaders_start_within_a_batch_begins_with_that_batch() -> None:
    node = Node()
    partition = node.follow()
    log = ModelLog()
    log.write(3, records=4)
    log.high_watermark = 12
    log.delete_before(6)
    node.lead(2, partition, log, 1)
    node.settle()
    assert stored(partition) == log.contents()
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (6, 12)


def test_a_follower_that_becomes_leader_begins_its_epoch_at_its_end() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 3))
    node.lead(2, partition, log, 1)
    node.settle()
    node.world.change(partition, leader=NODE)
    assert partition.is_leader
    assert partition.log.epoch_end_offset(1) == (0, 3)
    log.write()
    node.settle()
    node.run(1)
    assert partition.log.log_end_offset == 3
    fetches = len(node.brokers[2].fetches)
    node.run(10)
    assert len(node.brokers[2].fetches) == fetches
    assert node.peers[2].connections[0].lost


def test_an_answer_that_comes_late_changes_nothing() -> None:
    """It was asked as follower of epoch 1, and comes when this node leads, and then follows another leader."""
    node = Node()
    partition = node.follow(records=2)
    node.peers[2].held.add(ApiKey.FETCH)
    log = led((0, 1))
    node.lead(2, partition, log, 1)
    log.write(5)
    node.run(0.1)
    assert ApiKey.FETCH in [key for key, _ in node.peers[2].requests]
    node.world.change(partition, leader=NODE)
    node.peers[2].release()
    node.settle()
    assert (partition.log.log_end_offset, partition.is_leader) == (2, True)
    node.peers[2].held.add(ApiKey.FETCH)
    node.world.change(partition, leader=2)
    node.run(0.1)
    node.world.change(partition, leader=3)
    other = led((0, 2))
    node.lead(3, partition, other, 4)
    node.peers[2].release()
    node.settle()
    assert stored(partition) == other.contents()


def test_a_role_change_while_a_truncation_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truncation ends, then this node leads; the fetcher of the epoch before changes nothing any more."""
    node = Node()
    threads = Threads(node.world, monkeypatch)
    partition = node.follow(records=5)
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    log.write(4)
    node.settle()
    assert (len(threads), partition.handle.truncating) == (1, True)
    node.world.change(partition, leader=NODE)
    node.run(1)
    assert not partition.is_leader
    threads.run()
    node.run(1)
    assert (partition.is_leader, partition.log.log_end_offset) == (True, 2)
    # And back.
    node.world.change(partition, leader=3)
    other = led((0, 2))
    node.lead(3, partition, other, 3)
    other.write(3)
    node.settle()
    assert stored(partition) == other.contents()


def test_other_partitions_of_the_fetcher_follow_again_after_a_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    threads = Threads(node.world, monkeypatch)
    first, second = node.follow("t", records=5), node.follow("u")
    node.lead(2, first, led((0, 2)), 1)
    log = led((0, 3))
    node.lead(2, second, log, 1)
    node.settle()
    threads.run()
    node.settle()
    assert stored(second) == log.contents()
    assert first.log.log_end_offset == 2


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
    node.world.disk.capacity_bytes = node.world.disk._used
    node.run(3)
    assert (partition.log.log_end_offset, partition.offline) == (0, False)
    node.world.disk.capacity_bytes = 1 << 40
    node.run(3)
    assert stored(partition) == log.contents()
    assert node.metric(MANAGER.format("FailedPartitionsCount")) == 0


def test_a_disk_that_is_full_in_the_middle_of_an_answer_is_waited_out() -> None:
    """What the log has taken already is not asked for again."""
    node = Node()
    partition = node.follow()
    log = led((0, 600))
    node.lead(2, partition, log, 1)
    size = sum(map(len, log.batches))
    node.world.disk.capacity_bytes = node.world.disk._used + size * 6 // 10
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
    # Broker 2 listens where the model of broker 3 does.
    node.addresses[2] = ("host", 3)
    node.run(1)
    assert stored(partition) == log.contents()


def test_a_fetch_session_survives_the_leaders_restart() -> None:
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


# -- the log -----------------------------------------------------------------------------------------------------------


class Held:
    """What runs on threads, held back until `run`."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self._loop = node.loop
        self._name = name
        self._blocking = node.world.runtime.run_blocking
        self._calls: list[Callable[[], None]] = []
        monkeypatch.setattr(node.world.runtime, "run_blocking", self._run_blocking)

    def __len__(self) -> int:
        return len(self._calls)

    def _run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._name not in getattr(function, "__qualname__", ""):
            return self._blocking(function, *args)
        future = self._loop.create_future()

        def call() -> None:
            try:
                future.set_result(function(*args))
            except Exception as error:  # noqa: BLE001  # whatever a call raises is its result
                future.set_exception(error)

        self._calls.append(call)
        return future

    def run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        self._loop.settle()


def test_a_followers_gap_is_noted_before_it_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an unclean stop takes the gap for a loss."""
    node = Node()
    partition = node.follow()
    log = ModelLog()
    log.write(2)
    log.write(2, gap=10)
    log.high_watermark = log.log_end_offset
    held = Held(node, monkeypatch, "_writer")
    node.lead(2, partition, log, 1)
    node.settle()
    assert (len(held), partition.log.log_end_offset) == (1, 0)
    held.run()
    node.settle()
    assert stored(partition) == log.contents()
    entries = decode_offsets(read_file(node.world.disk, f"d0/{names.CLEANER_OFFSETS}"))
    assert entries == {("t", 0): 0}
    # Once is enough.
    log.write(1, gap=3)
    node.settle()
    assert (len(held), stored(partition)) == (0, log.contents())


def test_a_followers_gap_is_no_loss_after_a_kill() -> None:
    """The gap lies between two segments, and nothing but the entry says that nothing is missing there."""
    node = Node()
    partition = node.follow(internal_segment_bytes="300")
    log = ModelLog()
    log.write(3)
    for _ in range(4):
        log.write(2, gap=10)
    node.lead(2, partition, log, 1)
    node.settle()
    assert stored(partition) == log.contents()
    assert len(partition.log.files.segments) > 2
    after = Node(disk=node.world.disk.power_loss(Survive.EVERYTHING))
    after.world.publish(*topic("t", 1, (NODE, 2, 3), internal_segment_bytes="300"))
    after.world.replicas.start()
    after.settle()
    again = after.world.replicas.get("t", 0)
    assert again.log.recovery is not None
    assert stored(again) == log.contents()


def test_a_gap_that_cannot_be_noted_is_not_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    partition = node.follow()
    log = ModelLog()
    log.write(2, gap=1)
    node.lead(2, partition, log, 1)
    node.world.disk.fail_next("rename", errno.EIO, path_contains=names.CLEANER_OFFSETS)
    node.settle()
    node.run(1)
    assert partition.offline


def test_the_next_fetch_waits_for_the_flush_that_the_topic_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader counts what the next fetch proves as acknowledged: with flush.messages it is to be durable."""
    node = Node()
    partition = node.follow(flush_messages="1")
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    held = Held(node, monkeypatch, "fsync_files")
    whole = Held(node, monkeypatch, "sync")
    node.settle()
    node.run(2)
    assert partition.log.log_end_offset == 2
    assert node.asked(2)[partition.topic_id, 0].fetch_offset == 0
    while len(held) or len(whole):
        held.run()
        whole.run()
    node.settle()
    assert partition.log.recovery_point == 2
    assert node.asked(2)[partition.topic_id, 0].fetch_offset == 2


def test_a_flush_that_a_truncation_overtakes_is_owed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round leaves out a log that is being cut, and tells nothing: the flush would be owed for ever."""
    node = Node((2, 3, 4))
    flushes = Held(node, monkeypatch, "sync")
    cuts = Held(node, monkeypatch, "Truncation.run")
    busy, partition = node.follow("busy", flush_messages="1"), node.follow(flush_messages="1")
    node.lead(2, busy, led((0, 1)), 1)
    node.settle()
    assert len(flushes) == 1
    node.run(1)
    node.lead(3, partition, led((0, 3)), 2)
    node.world.change(partition, leader=3)
    node.settle()
    assert partition.log.log_end_offset == 3
    # It owes a flush, for the round after the one that is under way. Now another leader, and another log.
    other = led((0, 1))
    node.lead(4, partition, other, 3)
    other.write(3)
    node.world.change(partition, leader=4)
    node.settle()
    assert (len(cuts), partition.handle.truncating) == (1, True)
    flushes.run()
    cuts.run()
    for _ in range(20):
        node.run(1)
        flushes.run()
    node.settle()
    assert stored(partition) == other.contents()
    assert partition.owed_from > partition.log.log_end_offset


def test_a_large_answer_leaves_the_loop_to_others() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2000))
    node.lead(2, partition, log, 1)
    ends: set[int] = set()

    def look() -> bool:
        ends.add(partition.log.log_end_offset)
        return partition.log.log_end_offset == 2000

    for peer in node.peers.values():
        peer.answer_now()
    node.until(look)
    assert len(ends) > 5
    assert stored(partition) == log.contents()


def test_nothing_is_appended_with_an_epoch_that_is_newer_than_the_one_that_was_asked() -> None:
    node = Node()
    partition = node.follow()
    log = led((0, 2))
    log.append(batch(2, 7))
    log.epochs.assign(1, 2)
    node.lead(2, partition, log, 1)
    node.run(2)
    assert stored(partition) == [(0, 0, 0), (1, 1, 0)]


def test_a_role_that_is_over_takes_nothing() -> None:
    node = Node()
    partition = node.follow()
    follower = partition.follower
    assert follower is not None
    node.world.change(partition, leader=3)
    for call in (
        lambda: follower.append(bytes(produced(b"x")), now_ms=NOW_MS),
        lambda: follower.agree(1, 0),
        lambda: follower.when_flushed(lambda code: None),
        lambda: follower.start_over(5, lambda code: None),
    ):
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH


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
    node.peers[2].is_silent = True
    node.run(1.9)
    assert node.metric(MANAGER.format("MinFetchRate")) == 0
    assert len(node.attempts) == 1
    node.peers[2].is_silent = False
    # The connection is given up, and after replica.fetch.backoff.ms there is another.
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
        assert len({runner for _, runner in node.fetchers._fetches.values()}) == count
        assert [stored(partition) for partition in partitions] == [log.contents() for log in logs]
        assert sum(not connection.lost for connection in node.peers[2].connections) == count


@pytest.mark.parametrize(
    ("topic", "index", "count", "expected"),
    # What Apache Kafka's Utils.abs(31 * topic.hashCode() + partition) % count says.
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
