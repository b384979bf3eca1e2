"""A follower's log, epochs and role follow its leader."""

from __future__ import annotations

import pytest

from pykbroker_wire.apis import ApiKey
from tests.replica.fetching.leader import ModelLog
from tests.replica.fetching.node import BROKER_EPOCH, Node, led, stored
from tests.replica.world import NODE
from tests.storage.truncating import Threads


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
    # The leader's high watermark may be smaller or greater than the follower's end.
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
    """An unclean election: the records of this node are not in the new leader's log."""
    node = Node()
    partition = node.follow(records=5)
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    log.write(4)
    node.settle()
    assert stored(partition) == log.contents()
    assert partition.log.epochs.entries() == [(0, 0), (1, 2)]


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_another() -> None:
    """Its epoch began at its log's end, and no other log has it. The entry is removed, although nothing is cut."""
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


def test_records_that_the_leader_has_deleted_do_not_keep_a_follower_out() -> None:
    """A former leader has written records that no other replica has. The new leader has deleted its own records at
    these offsets, in the middle of a batch, and so it no longer knows where their epoch ended. In Apache Kafka the
    partition counts as failed on the follower."""
    node = Node()
    partition = node.follow(records=5)
    log = led((0, 2))
    node.lead(2, partition, log, 1)
    log.write(records=6)
    log.high_watermark = 8
    log.delete_before(5)
    node.settle()
    assert stored(partition) == log.contents() == [(2, 7, 1)]
    assert (partition.log.log_start_offset, partition.high_watermark) == (5, 8)
    log.write()
    node.settle()
    assert stored(partition) == log.contents()


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
    """The request was sent as a follower in epoch 1. The answer comes when this node leads, and then follows another
    leader."""
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
    """The truncation ends, then this node leads. The fetcher of the former epoch changes nothing."""
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
    # Then it follows again.
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
