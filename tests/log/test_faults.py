"""A disk that fails: no unacknowledged record can be read, a full disk is no broken disk, a failed fsync is final."""

from __future__ import annotations

import errno
import pathlib

import pytest

from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import NOW, append, check_consistent, open_log, values


def start(**config: int) -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log = open_log(disk, config=LogConfig(**config))  # type: ignore[arg-type]
    append(log, b"one")
    append(log, b"two")
    return disk, log


def again(disk: MemoryDisk) -> PartitionLog:
    return open_log(disk.power_loss(Survive.EVERYTHING))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_write_counts_for_nothing(code: int) -> None:
    disk, log = start()
    disk.fail_next("pwritev", code, path_contains=".log")
    with pytest.raises(StorageError) as error:
        append(log, b"three" * 20)
    assert error.value.log_dir == "data"
    assert error.value.is_full == (code == errno.ENOSPC)
    assert log.log_end_offset == 2
    assert values(log) == {0: b"one", 1: b"two"}
    # The half that was written has been cut off again, so the log may continue.
    assert append(log, b"four") == 2
    check_consistent(log)
    assert values(again(disk)) == {0: b"one", 1: b"two", 2: b"four"}


def test_a_tail_that_cannot_be_cut_off_ends_the_log() -> None:
    disk, log = start()
    disk.fail_next("pwritev", path_contains=".log")
    disk.fail_next("truncate", path_contains=".log")
    with pytest.raises(StorageError):
        append(log, b"three" * 20)
    with pytest.raises(StorageError):
        append(log, b"four")
    assert values(log) == {0: b"one", 1: b"two"}
    assert values(again(disk)) == {0: b"one", 1: b"two"}


def test_a_failed_fsync_is_final() -> None:
    disk, log = start()
    disk.fail_next("fsync", path_contains=".log")
    with pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    with pytest.raises(StorageError):
        log.flush()
    with pytest.raises(StorageError):
        append(log, b"three")
    assert values(log) == {0: b"one", 1: b"two"}  # what is there can be read


@pytest.mark.parametrize("operation", ["create", "pwritev"])
def test_a_roll_that_fails_leaves_the_old_segment(operation: str) -> None:
    disk, log = start(segment_bytes=200)
    disk.fail_next(operation, errno.ENOSPC, path_contains="00000000000000000002")
    with pytest.raises(StorageError):
        append(log, b"three" * 20)
    assert log.log_end_offset == 2
    assert append(log, b"four" * 20) == 2
    check_consistent(log)
    assert len(log.files.segments) == 2
    assert again(disk).log_end_offset == 3


def test_a_full_disk_is_no_broken_disk() -> None:
    disk = MemoryDisk(capacity_bytes=2000)
    log = open_log(disk)
    with pytest.raises(StorageError) as error:
        [append(log, b"x" * 100) for _ in range(100)]
    assert error.value.is_full
    end = log.log_end_offset
    check_consistent(log)
    disk.capacity_bytes = 10_000
    assert append(log, b"again") == end
    check_consistent(log)
    assert again(disk).log_end_offset == end + 1


def test_a_read_error_is_a_storage_error_and_the_log_goes_on() -> None:
    disk, log = start()
    disk.fail_next("pread", path_contains=".log")
    with pytest.raises(StorageError):
        log.read(0, 1000, 2)
    assert values(log) == {0: b"one", 1: b"two"}


def test_a_file_that_shrank_is_a_storage_error() -> None:
    disk, log = start()
    file = disk.open("data/t-0/00000000000000000000.log")
    file.truncate(file.size() - 10)
    with pytest.raises(StorageError):
        log.read(0, 1000, 2)


def test_opening_on_a_failing_disk() -> None:
    disk, _ = start()
    disk.fail_next("pread", path_contains=".log", count=None)
    with pytest.raises(StorageError):
        open_log(disk)


def test_a_truncation_that_fails_is_final() -> None:
    disk, log = start()
    disk.fail_next("truncate", path_contains=".log")
    with pytest.raises(StorageError):
        log.truncate_to(1)
    with pytest.raises(StorageError):
        append(log, b"three")


class FlushesBeside(OsDisk):
    """A disk whose rename lets other threads run: one of them flushes the log."""

    log: PartitionLog | None = None

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if self.log is not None:
            log, self.log = self.log, None
            log.flush()


def test_a_flush_that_begins_while_names_are_taken_away_goes_on(tmp_path: pathlib.Path) -> None:
    """The flush found a closed file, and the directory went offline. Nodes that were killed under load showed it."""
    disk = FlushesBeside()
    path = f"{tmp_path}/t-0"
    log = open_log(disk, path=path, config=LogConfig(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0))
    for value in (b"one", b"two", b"three"):
        append(log, value)
    log.files.deletion.durable_start_offset = 0
    log.retire(NOW)
    assert len(log.files.deletion.retired) > 1
    log.files.deletion.durable_start_offset = log.log_start_offset
    disk.log = log
    log.purge(NOW)
    assert disk.log is None
    assert log.recovery_point == log.log_end_offset
    assert append(log, b"four") == 3
