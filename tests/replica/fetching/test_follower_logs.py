"""The effects of following on a node's logs: gaps, flushes, truncations, large answers, roles that are over."""

from __future__ import annotations

import errno

import pytest

from pykbroker_log import names
from pykbroker_log.checkpoints import decode_offsets
from pykbroker_log.disk import read_file
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.replica.fetching.leader import ModelLog, batch
from tests.replica.fetching.node import Held, Node, led, stored
from tests.replica.world import NODE, NOW_MS, topic
from tests.replica.world import batch as produced


def test_a_followers_gap_is_noted_before_it_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an unclean stop takes the gap for a loss."""
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
    """The gap is between two segments, and only the entry shows that nothing is missing there."""
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
    path = partition.log.path
    node.settle()
    node.run(1)
    assert partition.offline
    segment = f"{path}/{names.segment_file(0, names.LOG)}"
    assert read_file(node.world.disk, segment) == b""


def test_the_next_fetch_waits_for_the_flush_that_the_topic_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader counts records that the next fetch proves as acknowledged, so with flush.messages they must be
    durable."""
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
    """A round leaves out a log that is being cut, and reports nothing. The flush would be owed without end."""
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
    # It owes a flush in the round after the present one. Then there is another leader, and another log.
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
