"""Segments that retention deletes, and the reasons in Apache Kafka's order; and how their files are deleted."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest

from pykbroker_log.deletion import delete_files
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import build_batch
from testkit.logs.helpers import NOW, append, batch, open_log, values

#: a record of 20 bytes in a segment of its own
SMALL = LogConfig(segment_bytes=100, retention_ms=-1, file_delete_delay_ms=1000)


def filled(
    disk: MemoryDisk | None = None, config: LogConfig = SMALL, times: tuple[int, ...] = (NOW,) * 5
) -> PartitionLog:
    """A log with a segment per timestamp."""
    log = open_log(disk, config=config)
    for timestamp in times:
        append(log, b"x" * 20, timestamp=timestamp)
    assert len(log.files.segments) == len(times)
    return log


def names_of(disk: MemoryDisk, suffix: str = ".log") -> list[int]:
    return [int(name[:20]) for name in disk.list("data/t-0") if name.endswith(suffix)]


def test_age_is_that_of_the_newest_record_and_ends_at_the_first_that_stays() -> None:
    log = filled(times=(NOW - 3000, NOW - 1001, NOW - 500, NOW - 5000, NOW))
    log.config = replace(SMALL, retention_ms=1000)
    assert log.retire(NOW) == 2
    assert log.log_start_offset == 2
    # An expired segment stays if an older one stays.
    assert log.retire(NOW + 500) == 0
    assert log.retire(NOW + 501) == 2
    assert log.log_start_offset == 4


def test_a_record_of_the_future_keeps_its_segment_until_then() -> None:
    log = filled(times=(NOW + 60_000, NOW))
    log.config = replace(SMALL, retention_ms=1000)
    assert log.retire(NOW + 60_000) == 0
    assert log.retire(NOW + 61_000) == 0
    assert log.retire(NOW + 61_001) == 2


def test_records_without_timestamps_are_as_old_as_their_file_also_after_a_restart() -> None:
    clock = [NOW]
    disk = MemoryDisk(clock=lambda: clock[0])
    log = filled(disk, times=(-1, -1))
    log.close(clean=True)
    clock[0] = NOW + 900
    log = open_log(disk, config=replace(SMALL, retention_ms=1000), clean=True, recovery_point=2, high_watermark=2)
    assert log.retire(NOW + 1000) == 0
    assert log.retire(NOW + 1001) == 2


def test_size_leaves_at_least_retention_bytes() -> None:
    log = filled()
    one = log.size_bytes // 5
    for kept, gone in ((5 * one, 0), (4 * one + 1, 0), (4 * one, 1), (2 * one + 1, 1), (1, 2)):
        log.config = replace(SMALL, retention_bytes=kept)
        assert log.retire(NOW) == gone, kept
    # The active segment goes too if retention keeps nothing: it is rolled first.
    log.config = replace(SMALL, retention_bytes=0)
    assert log.retire(NOW) == 1
    assert (log.log_start_offset, log.log_end_offset, len(log.files.segments), log.size_bytes) == (5, 5, 1, 0)
    assert log.retire(NOW) == 0
    assert append(log, b"next") == 5


def test_nothing_goes_that_is_not_below_the_high_watermark() -> None:
    log = open_log(config=replace(SMALL, retention_bytes=0))
    for offset in range(4):
        append(log, b"x" * 20)
        log.high_watermark = min(offset + 1, 2)
    assert log.retire(NOW) == 2
    assert log.log_start_offset == 2


@pytest.mark.parametrize(("policy", "gone"), [("compact", 2), ("", 2), ("delete", 5), ("compact,delete", 5)])
def test_without_delete_only_what_lies_below_the_log_start_goes(policy: str, gone: int) -> None:
    log = filled()
    log.delete_records_before(2)
    config = LogConfig.from_topic({"cleanup.policy": policy, "retention.ms": 0, "retention.bytes": 0})
    log.config = replace(config, segment_bytes=100)
    assert log.retire(NOW + 1) == gone


def test_the_reasons_are_said_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    log = filled(times=(NOW, NOW, NOW - 9, -1, NOW))
    one = log.size_bytes // 5
    log.delete_records_before(1)
    log.config = replace(SMALL, retention_bytes=3 * one, retention_ms=5)
    with caplog.at_level(logging.INFO):
        assert log.retire(NOW) == 4
    said = [record.getMessage() for record in caplog.records if "deleting" in record.getMessage()]
    assert [line.partition("due to ")[2] for line in said] == [
        "log start offset 1 breach",
        f"log retention size {3 * one} breach. Log size after deletion will be {3 * one}.",
        "log retention time 5ms breach based on the largest record timestamp in the segment",
        "log retention time 5ms breach based on the last modified time of the segment",
    ]
    assert said[0].startswith("Partition t-0: deleting segment LogSegment(baseOffset=0, size=")
    assert "Partition t-0: incremented log start offset to 4 due to segment deletion" in caplog.messages


# -- files


def test_a_file_goes_after_the_delay_that_was_configured_when_it_was_let_go() -> None:
    disk = MemoryDisk()
    log = filled(disk, config=replace(SMALL, retention_bytes=300))
    assert log.retire(NOW) > 0
    assert log.purge(NOW) == []
    gone = names_of(disk, ".log.deleted")
    log.config = replace(log.config, retention_bytes=100, file_delete_delay_ms=10)
    assert log.retire(NOW) > 0
    assert log.purge(NOW) == []
    assert len(names_of(disk, ".log.deleted")) > len(gone)
    # A shorter delay that was configured later ends earlier.
    delete_files(disk, log.purge(NOW + 10))
    assert names_of(disk, ".log.deleted") == gone
    delete_files(disk, log.purge(NOW + 1000))
    assert not [name for name in disk.list("data/t-0") if name.endswith(".deleted")]


def test_files_that_have_gone_already_are_no_failure() -> None:
    disk = MemoryDisk()
    log = filled(disk, config=replace(SMALL, retention_bytes=0, file_delete_delay_ms=0))
    log.retire(NOW)
    files = log.purge(NOW)
    disk.unlink(files[0])
    delete_files(disk, files)
    log.close(clean=False)
    assert log.purge(NOW) == []
    disk.fail_next("unlink", errno.EIO)
    with pytest.raises(StorageError) as error:
        delete_files(disk, ["data/t-0/leader-epoch-checkpoint"])
    assert error.value.log_dir == "data"


def test_on_a_full_disk_names_go_durably_one_after_the_other() -> None:
    """The log start cannot be checkpointed then, and a crash must not leave a gap that looks like lost records."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log = filled(disk)
    log.flush()
    log.files.deletion.durable_start_offset = 0
    log.config = replace(SMALL, retention_bytes=1)
    assert log.retire(NOW) == 4
    assert log.purge(NOW) == []
    assert names_of(disk) == [0, 1, 2, 3, 4]
    before = len(disk.calls)
    log.purge(NOW, one_by_one=True)
    assert names_of(disk) == [4]
    for end in range(before, len(disk.calls) + 1):
        for survive in (Survive.NOTHING, Survive.EVERYTHING):
            left = MemoryDisk.replay(disk.calls[:end]).power_loss(survive)
            again = open_log(left, config=log.config, recovery_point=5, high_watermark=5)
            assert again.log_end_offset == 5
            assert list(values(again)) == list(range(again.log_start_offset, 5))


# -- rolling


def test_what_may_be_compacted_is_not_kept_in_the_active_segment_for_longer_than_the_lag() -> None:
    lag = {"segment.ms": 5000, "max.compaction.lag.ms": 1000}
    for policy, rolled in (("delete", 1), ("compact", 2), ("compact,delete", 2)):
        log = open_log(config=LogConfig.from_topic({**lag, "cleanup.policy": policy}))
        for timestamp in (NOW, NOW + 1001):
            append_keyed(log, timestamp)
        assert len(log.files.segments) == rolled, policy


def append_keyed(log: PartitionLog, timestamp: int) -> None:
    data = build_batch([(b"k", b"v", (), timestamp)])
    log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW)


def test_segment_ms_counts_in_the_records_time_and_without_one_in_ours() -> None:
    config = LogConfig(segment_ms=1000)
    log = open_log(config=config)
    for timestamp, count in ((NOW, 1), (NOW + 1000, 1), (NOW + 1001, 2), (NOW - 9000, 2), (NOW + 2002, 3)):
        append(log, b"v", timestamp=timestamp)
        assert len(log.files.segments) == count, timestamp
    log = open_log(config=config)
    append(log, b"v", timestamp=-1)
    log.append_as_leader(batch(b"v", timestamp=-1), leader_epoch=0, now_ms=NOW + 1000)
    assert len(log.files.segments) == 1
    log.append_as_leader(batch(b"v", timestamp=-1), leader_epoch=0, now_ms=NOW + 1001)
    assert len(log.files.segments) == 2


def test_jitter_brings_a_roll_forward_by_less_than_the_least_of_both() -> None:
    waited = set()
    for base in range(40):
        log = open_log(MemoryDisk(), config=LogConfig(segment_ms=1000, segment_jitter_ms=5000))
        log.truncate_fully_and_start_at(base)
        append(log, b"v", timestamp=NOW)
        for wait in range(1, 1002, 100):
            append(log, b"v", timestamp=NOW + wait)
            if len(log.files.segments) > 1:
                waited.add(wait)
                break
        else:
            raise AssertionError("not later than segment.ms")
    assert len(waited) > 4
    # The jitter stays the same for a segment, and is gone when the key is.
    log = open_log(config=LogConfig(segment_ms=1000))
    append(log, b"v", timestamp=NOW)
    append(log, b"v", timestamp=NOW + 1000)
    assert len(log.files.segments) == 1


# -- preallocation


@pytest.mark.parametrize("clean", [True, False])
def test_a_preallocated_segment_is_read_after_any_end(clean: bool) -> None:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=1000, preallocate=True)
    log = open_log(disk, config=config)
    for number in range(10):
        append(log, b"%d" % number * 300)
        assert disk.open(f"data/t-0/{log.files.active.base_offset:020d}.log").size() == 1000
    for segment in log.files.segments[:-1]:
        assert disk.open(segment.path(".log")).size() == segment.size < 1000
    log.close(clean=clean)
    disk = disk.power_loss(Survive.EVERYTHING)
    again = open_log(disk, config=config, clean=clean, recovery_point=10 if clean else 0, high_watermark=10)
    assert values(again) == {number: b"%d" % number * 300 for number in range(10)}
    assert append(again, b"next") == 10
    again.close(clean=True)
    assert sum(disk.open(f"data/t-0/{base:020d}.log").size() for base in names_of(disk)) == again.size_bytes


def test_preallocate_acts_on_the_next_segment_and_stops_acting_on_the_one_after() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=LogConfig(segment_bytes=1000))
    append(log, b"x" * 600)
    log.config = replace(log.config, preallocate=True)
    append(log, b"x" * 600)
    log.config = replace(log.config, preallocate=False)
    assert [disk.open(f"data/t-0/{base:020d}.log").size() for base in names_of(disk)][1] == 1000
    append(log, b"x" * 600)
    sizes = [disk.open(f"data/t-0/{base:020d}.log").size() for base in names_of(disk)]
    assert sizes == [segment.size for segment in log.files.segments]
