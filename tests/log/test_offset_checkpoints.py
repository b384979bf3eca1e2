"""The offset checkpoints of a directory, without the directory: what a write contains, and which write wins."""

from __future__ import annotations

import pytest

from pykbroker_log import names
from pykbroker_log.checkpoints import TopicPartition, decode_offsets
from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.disk import read_file
from pykbroker_log.log_config import StorageError
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.offset_checkpoints import OffsetCheckpoints
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import NOW, batch, open_log

KEY = ("t", 0)


def made(disk: MemoryDisk, logs: dict[TopicPartition, PartitionLog] | None = None) -> OffsetCheckpoints:
    if not disk.exists("data"):
        disk.make_dirs("data")
    if not disk.exists(f"data/{names.LOCK}"):
        disk.lock(f"data/{names.LOCK}")
    sign = CleanShutdown(disk, "data")
    sign.read()
    checkpoints = OffsetCheckpoints(disk, "data", sign, logs if logs is not None else {})
    checkpoints.read(NOW)
    return checkpoints


def stored(disk: MemoryDisk, name: str) -> dict[TopicPartition, int]:
    return decode_offsets(read_file(disk, f"data/{name}"))


def test_the_entries_of_partitions_that_are_not_open_stay() -> None:
    disk = MemoryDisk()
    first = made(disk)
    first.recovery_points["u", 3] = 9
    first.write_all()
    log = open_log(disk)
    log.append_as_leader(bytearray(batch(b"v")), leader_epoch=0, now_ms=NOW)
    log.flush()
    made(disk, {KEY: log}).write_all()
    assert stored(disk, names.RECOVERY_POINTS) == {("u", 3): 9, KEY: 1}


def test_a_write_that_began_earlier_writes_the_newest_offsets() -> None:
    disk = MemoryDisk()
    checkpoints = made(disk)
    checkpoints.note_durable_end("t", 0, 5)
    earlier = checkpoints.prepare_recovery_points()
    checkpoints.note_durable_end("t", 0, 3)
    checkpoints.prepare_recovery_points()()
    earlier()
    assert stored(disk, names.RECOVERY_POINTS) == {KEY: 3}


def test_a_truncation_lowers_only_the_files_that_are_too_high() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    checkpoints = made(disk, {KEY: log})
    assert checkpoints.before_truncation(log) == []
    checkpoints.note_durable_end("t", 0, 4)
    checkpoints.set_cleaner_offset(log, 4)
    for write in checkpoints.before_truncation(log):
        write()
    assert stored(disk, names.RECOVERY_POINTS) == {KEY: 0}
    assert stored(disk, names.CLEANER_OFFSETS) == {KEY: 0}
    assert not disk.exists(f"data/{names.LOG_START_OFFSETS}")


def test_a_malformed_file_is_set_aside_and_begins_empty() -> None:
    disk = MemoryDisk()
    first = made(disk)
    first.note_durable_end("t", 0, 5)
    first.write_all()
    disk.open(f"data/{names.RECOVERY_POINTS}").pwritev((b"x",), 0)
    assert made(disk).recovery_points == {}
    assert disk.exists(f"data/{names.RECOVERY_POINTS}.corrupt-{NOW}")


def test_nothing_is_written_where_the_lock_file_has_gone() -> None:
    disk = MemoryDisk()
    checkpoints = made(disk)
    disk.unlink(f"data/{names.LOCK}")
    with pytest.raises(StorageError):
        checkpoints.write_all()


def test_an_offset_is_promised_by_the_recovery_point_or_the_high_watermark() -> None:
    checkpoints = made(MemoryDisk())
    assert checkpoints.promised_end(KEY) == 0
    checkpoints.recovery_points[KEY] = 4
    checkpoints.high_watermarks[KEY] = 7
    assert checkpoints.promised_end(KEY) == 7
    checkpoints.forget(KEY)
    assert checkpoints.promised_end(KEY) == 0
