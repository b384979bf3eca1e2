"""A truncation in its three steps: what happens between them, and what a power loss leaves."""

from __future__ import annotations

import errno
import random
from typing import NamedTuple

import pytest

from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.truncation import Truncation
from pykbroker_wire.errors import ErrorCode, KafkaError
from testkit.logs.helpers import NOW, TOPIC_ID, append, batch, check_compacted, check_consistent, open_log, values
from testkit.logs.power_loss import Workload
from tests.log.compacting import compact, put
from tests.log.test_power_loss import SEEDS, examine_all

COMPACTED = LogConfig(segment_bytes=300, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)


class Place(NamedTuple):
    disk: MemoryDisk
    log_dir: LogDir
    log: PartitionLog


@pytest.fixture
def place() -> Place:
    """Twelve records in several segments, flushed and checkpointed."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log_dir = LogDir.open(disk, "data", b"d" * 16, NOW)
    log = log_dir.open_log("t", 0, TOPIC_ID, SMALL, NOW)
    for number in range(12):
        log.append_as_leader(
            batch(b"%d" % number * 30, pid=1, epoch=0, seq=number), leader_epoch=number // 4, now_ms=NOW
        )
    log.flush()
    log.set_high_watermark(12)
    log_dir.checkpoints.write_all()
    return Place(disk, log_dir, log)


def begun(log: PartitionLog, offset: int) -> Truncation:
    truncation = log.begin_truncate(offset)
    assert truncation is not None
    return truncation


def refused(log: PartitionLog) -> None:
    """Check that the log refuses every operation."""
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(batch(b"x"), leader_epoch=9, now_ms=NOW)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for use in (
        lambda: log.append_as_follower(batch(b"x"), now_ms=NOW),
        lambda: log.read(0, 1_000, 12),
        lambda: log.begin_flush(),
        lambda: log.roll(NOW),
        lambda: log.begin_truncate(1),
        lambda: log.begin_start_over(1),
    ):
        with pytest.raises(KafkaError) as error:
            use()
        assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (log.retire(NOW + 10**12), log.purge(NOW)) == (0, [])


def test_the_loop_never_fsyncs_for_a_truncation(place: Place) -> None:
    """Begin and end run on the loop: neither uses the disk for more than reads of the log."""
    disk, _, log = place
    before = len(disk.calls)
    truncation = begun(log, 5)
    assert disk.calls[before:] == []
    truncation.run()
    done = len(disk.calls)
    assert "fsync" in {call.operation for call in disk.calls[before:done]}
    log.end_truncate(truncation)
    assert disk.calls[done:] == []
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (5, 5, 5)


def test_between_begin_and_end_nothing_is_read_or_appended(place: Place) -> None:
    _, _, log = place
    truncation = begun(log, 5)
    refused(log)
    assert log.recovery_point == 5
    truncation.run()
    refused(log)
    log.end_truncate(truncation)
    assert sorted(values(log)) == list(range(5))
    assert append(log, b"more", epoch=9) == 5
    check_consistent(log)


def test_nothing_behind_the_end_is_nothing_to_cut(place: Place) -> None:
    assert place.log.begin_truncate(12) is None
    assert append(place.log, b"more", epoch=9) == 12


def test_a_checkpoint_that_cannot_be_written_leaves_the_log_as_it_was(place: Place) -> None:
    disk, _, log = place
    truncation = log.begin_start_over(3)
    disk.fail_next("create", errno.ENOSPC, path_contains="recovery-point-offset-checkpoint")
    with pytest.raises(StorageError):
        truncation.run()
    log.end_truncate(truncation)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 12, 12)
    assert sorted(values(log)) == list(range(12))
    log.truncate_fully_and_start_at(20)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)


def test_a_disk_that_fails_within_the_cut_is_the_end_of_the_log(place: Place) -> None:
    disk, _, log = place
    truncation = begun(log, 5)
    disk.fail_next("fsync", errno.EIO, path_contains=".log")
    with pytest.raises(StorageError):
        truncation.run()
    log.end_truncate(truncation)
    with pytest.raises(StorageError) as error:
        log.append_as_leader(batch(b"x"), leader_epoch=9, now_ms=NOW)
    assert error.value.is_final


def test_a_log_that_is_closed_meanwhile_stays_closed(place: Place) -> None:
    """A directory that fails closes its logs at once, even while the thread of a truncation uses them."""
    _, log_dir, log = place
    truncation = begun(log, 5)
    log_dir.take_offline()
    with pytest.raises(StorageError):
        truncation.run()
    log.end_truncate(truncation)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(b"x"), leader_epoch=9, now_ms=NOW)
    assert log.files.is_closed


def test_a_checkpoint_of_others_in_between_brings_no_promise_back(place: Place) -> None:
    """A recovery point from before the cut would hide later records from the next scan."""
    disk, log_dir, log = place
    periodic = log_dir.checkpoints.prepare_recovery_points()
    truncation = begun(log, 5)
    truncation.run()
    periodic()
    log.end_truncate(truncation)
    append(log, b"not flushed", epoch=9)
    for seed in range(20):
        left = LogDir.open(
            disk.power_loss(Survive.CHOSEN, choose=random.Random(seed).randrange), "data", b"d" * 16, NOW
        )
        again = left.open_log("t", 0, TOPIC_ID, SMALL, NOW)
        assert again.log_end_offset in (5, 6)
        check_consistent(again)


class InSteps(Workload):
    """Truncates in three steps, with a round of checkpoints between them."""

    def truncate(self) -> None:
        log = self.log
        begun = len(self.disk.calls)
        target = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        # A crash during the truncation may leave the old log or the new one.
        self.promised = min(self.promised, target)
        truncation = log.begin_truncate(target)
        if truncation is not None:
            # Collected on the loop, and written before the thread begins or after it has ended.
            writes = self.dir.checkpoints.prepare_all()
            split = self.rng.randrange(len(writes) + 1)
            for write in writes[:split]:
                write()
            truncation.run()
            for write in writes[split:]:
                write()
            log.end_truncate(truncation)
        self.promised = min(self.promised, log.log_end_offset)
        self.records = {offset: value for offset, value in self.records.items() if offset < log.log_end_offset}
        self.forget_sequences()
        self.moment(begun, forget=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*SEEDS[:3], 31, 85])
def test_every_prefix_of_truncations_in_three_steps(seed: int) -> None:
    examine_all(InSteps(seed))


@pytest.mark.slow
@pytest.mark.parametrize("later", range(4))
def test_a_truncation_gives_up_the_compaction_that_is_under_way(later: int) -> None:
    """The loop continues the steps of a compaction while the truncation waits for its thread. A segment that the
    compaction
    has announced comes back neither then nor after a crash."""
    for at in range(62):
        truncate_under_a_compaction(at, later)


def truncate_under_a_compaction(at: int, later: int) -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log = open_log(disk, config=COMPACTED)
    for number in range(20):
        put(log, (b"k%d" % (number % 3), b"%d" % number * 20))
    log.flush()
    moments = 0
    truncation: Truncation | None = None
    has_run = False
    begun_at = 0

    def between() -> None:
        nonlocal moments, truncation, has_run, begun_at
        if moments == at:
            truncation = log.begin_truncate(4)
            begun_at = len(disk.calls)
        if truncation is not None and moments == at + later:
            # Only the thread may drop the announced segment, and no later step was done.
            meanwhile = [call for call in disk.calls[begun_at:] if call.operation in ("rename", "unlink")]
            assert not [call for call in meanwhile if ".swap" in f"{call}"]
            truncation.run()
            log.end_truncate(truncation)
            has_run = True
        moments += 1

    compact(log, between=between)
    while not has_run:
        between()
    assert log.log_end_offset <= 4
    left = batches(log)
    check_compacted(log)
    for survive in (Survive.NOTHING, Survive.EVERYTHING):
        after = disk.power_loss(survive)
        again = open_log(after, config=log.config)
        assert (again.log_end_offset, batches(again)) == (log.log_end_offset, left)
        assert not [name for name in after.list("data/t-0") if ".swap" in name or ".cleaned" in name]
    put(log, (b"more", b"more"))
    check_compacted(log)


def batches(log: PartitionLog) -> list[int]:
    """Return the base offset of each batch."""
    return [header.base_offset for segment in log.files.segments for _, header in segment.walk(0)]
