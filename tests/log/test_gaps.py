"""Logs with gaps and emptied batches, as compaction leaves them: the results of readers, a follower and a start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykbroker.runtime.workers import finish
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery_job import recover
from testkit.logs.helpers import NOW, TOPIC_ID, check_compacted, open_log, read_all
from tests.log.compacting import compact, contents, keyed, put

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)


def with_epochs() -> PartitionLog:
    """A log of which six of 16 batches are left, the one at 6 without its record; epochs 0 to 3 begin at 0, 4, 8 and
    12."""
    log = open_log(config=COMPACT)
    for number in range(16):
        key = b"%d" % number if number in (0, 11, 14) else b"again"
        pid, sequence = (1, 0) if number == 6 else (-1, -1)
        data = keyed((key, b"v"), timestamp=NOW + number, pid=pid, epoch=sequence, seq=sequence)
        log.append_as_leader(data, leader_epoch=number // 4, now_ms=NOW)
        log.set_high_watermark(log.log_end_offset)
        if number % 5 == 4:
            log.roll(NOW)
    compact(log)
    assert [(header.base_offset, header.record_count) for header, _ in read_all(log)] == [
        (0, 1), (6, 0), (11, 1), (13, 1), (14, 1), (15, 1),
    ]  # fmt: skip
    return log


def test_every_offset_leads_to_the_first_batch_that_ends_behind_it() -> None:
    log = with_epochs()
    bases = [header.base_offset for header, _ in read_all(log)]
    for offset in range(log.log_end_offset):
        for max_bytes in (1, 1 << 20):
            result = log.read(offset, max_bytes, log.log_end_offset)
            assert result.joined()[:8] == next(base for base in bases if base >= offset).to_bytes(8)
            assert result.next_offset > offset


def test_times_lead_past_emptied_batches() -> None:
    log = with_epochs()
    there = [0, 11, 13, 14, 15]
    for number in range(16):
        expected = next(offset for offset in there if offset >= number)
        assert log.offset_for_timestamp(NOW + number) == (expected, NOW + expected, expected // 4)
    assert log.offset_for_timestamp(NOW + 16) is None
    assert log.offset_of_max_timestamp() == (15, NOW + 15, 3)


def test_where_the_newest_batch_was_emptied_nothing_is_the_newest() -> None:
    """Apache Kafka finds no newest record here either. Its lookup by time also ends at that batch; pykbroker finds the
    later records."""
    log = open_log(config=COMPACT)
    put(log, (b"a", b"1"))
    log.roll(NOW)
    put(log, (b"b", b"1"), timestamp=NOW + 100, pid=1, epoch=0, seq=0)
    log.roll(NOW)
    put(log, (b"b", b"2"), timestamp=NOW + 50)
    assert log.offset_of_max_timestamp() == (1, NOW + 100, 0)
    log.roll(NOW)
    put(log, (b"c", b"1"), timestamp=NOW + 60)
    compact(log)
    assert [header.record_count for header, _ in read_all(log)] == [1, 0, 1, 1]
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(NOW + 1) == (2, NOW + 50, 0)
    assert log.offset_for_timestamp(NOW + 60) == (3, NOW + 60, 0)
    assert log.offset_for_timestamp(NOW + 61) is None
    # The same segment may contain another record that is as new.
    put(log, (b"d", b"1"), timestamp=NOW + 100)
    log.roll(NOW)
    compact(log)
    assert len(log.files.segments) == 2
    assert log.offset_of_max_timestamp() == (4, NOW + 100, 0)


@pytest.mark.parametrize("segment_bytes", [100, 250, 1 << 20])
def test_a_follower_of_a_compacted_log_is_the_same_log(segment_bytes: int) -> None:
    log = with_epochs()
    disk = MemoryDisk()
    follower = open_log(disk, config=replace(COMPACT, segment_bytes=segment_bytes))
    offset = 0
    while offset < log.log_end_offset:
        result = log.read(offset, 150, log.log_end_offset)
        follower.append_as_follower(result.joined(), now_ms=NOW)
        offset = result.next_offset
    follower.set_high_watermark(follower.log_end_offset)
    assert read_all(follower) == read_all(log)
    bases = [header.base_offset for header, _ in read_all(log)]
    assert all(segment.base_offset in bases for segment in follower.files.segments), "it rolls where a batch begins"
    for epoch in range(4):
        # An epoch whose first records are gone begins, for the follower, with the first batch that it gets.
        known = next((base for base in bases if base // 4 == epoch + 1), log.log_end_offset)
        assert follower.epoch_end_offset(epoch) == (epoch, known)
        assert log.epoch_end_offset(epoch) == (epoch, 4 * (epoch + 1))
    check_compacted(follower)
    # After an unclean stop gaps are no loss.
    again = open_log(disk.power_loss(Survive.EVERYTHING), config=follower.config, high_watermark=offset)
    assert read_all(again) == read_all(log)
    assert again.log_end_offset == log.log_end_offset


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "in a worker"])
def test_gaps_of_a_topic_that_is_no_longer_compacted_are_no_loss(apart: bool) -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    log_dir = LogDir.open(disk, "data", b"d" * 16, NOW)
    log = log_dir.open_log("t", 0, TOPIC_ID, replace(COMPACT, segment_bytes=150), NOW)
    for number in range(12):
        put(log, (b"k" if number % 6 > 1 else b"%d" % number, bytes(50)))
    compact(log)
    log_dir.checkpoints.set_cleaner_offset(log, 10)
    log_dir.checkpoints.prepare_cleaner_offsets()()
    expected = contents(log)
    bases = [segment.base_offset for segment in log.files.segments]
    ends = [segment.end_before(1 << 40) for segment in log.files.segments]
    assert any(end < base for end, base in zip(ends, bases[1:], strict=False)), "there are gaps between segments"
    # The checkpoint of recovery points was never written.
    again = LogDir.open(disk.power_loss(Survive.EVERYTHING), "data", b"d" * 16, NOW)
    deleted = LogConfig(segment_bytes=150, index_interval_bytes=100)
    if apart:
        job = again.unrecovered("t", 0, deleted, NOW, producer_id_expiration_ms=DEFAULT_EXPIRATION_MS)
        (found,) = finish(recover, again.disk, [job])
        assert not found.warnings
        again.recovered("t", 0, found.log_end_offset)
    log = again.open_log("t", 0, TOPIC_ID, deleted, NOW)
    assert contents(log) == expected
