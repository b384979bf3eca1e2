"""Fsync passes: what they cover, what may happen during them, and that a failed one is final."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest

from pykbroker_log.deletion import delete_files
from pykbroker_log.flush_state import Flush, sync
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.memory_disk import DiskCall, MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import KafkaError
from testkit.logs.helpers import NOW, append, batch, open_log, values


def start(**config: int) -> tuple[MemoryDisk, PartitionLog]:
    disk = MemoryDisk()
    log = open_log(disk, config=LogConfig(**config))  # type: ignore[arg-type]
    append(log, b"one")
    append(log, b"two")
    return disk, log


def finish(log: PartitionLog, flush: Flush) -> None:
    sync(log.files.disk, "data", [flush])
    log.files.end_flush(flush)


def synced(calls: Sequence[DiskCall]) -> list[str]:
    return [call.path for call in calls if call.operation.startswith("fsync")]


def flushed(disk: MemoryDisk, log: PartitionLog) -> list[str]:
    before = len(disk.calls)
    finish(log, log.begin_flush())
    return synced(disk.calls[before:])


def test_an_append_costs_one_fsync_once_the_names_are_durable() -> None:
    disk, log = start(segment_bytes=400)
    assert {"data", "data/t-0", "data/t-0/partition.metadata"} < set(flushed(disk, log))
    append(log, b"three")
    assert flushed(disk, log) == ["data/t-0/00000000000000000000.log"]
    append(log, b"four" * 60)
    # A segment, its producer snapshot, and the sealed files: the folder has new names.
    assert "data/t-0" in (after_roll := flushed(disk, log))
    assert "data/t-0/00000000000000000000.index" in after_roll
    assert "data" not in after_roll
    append(log, b"five" * 60)
    log.assign_epoch_start(7, 5)
    found = flushed(disk, log)
    assert "data/t-0/leader-epoch-checkpoint" in found
    assert "data/t-0" in found


@pytest.mark.parametrize("survive", [Survive.NOTHING, Survive.CHOSEN])
def test_what_was_flushed_survives_with_its_names(survive: Survive) -> None:
    for seed in range(20):
        disk, log = start(segment_bytes=200)
        disk.make_dirs("data")
        for number in range(3 + seed % 4):
            append(log, b"%d" % number * 60)
            finish(log, log.begin_flush())
        expected = values(log)
        append(log, b"lost, perhaps")
        disk.fsync_dir(".")
        again = open_log(disk.power_loss(survive, choose=random.Random(seed).randrange), config=log.config)
        assert expected.items() <= values(again).items()


def test_appends_beside_a_pass_are_not_counted() -> None:
    _, log = start()
    flush = log.begin_flush()
    append(log, b"three")
    finish(log, flush)
    assert log.recovery_point == 2
    finish(log, log.begin_flush())
    assert log.recovery_point == 3


def test_a_pass_that_a_truncation_overtakes_does_not_count() -> None:
    _, log = start()
    flush = log.begin_flush()
    log.truncate_to(1)
    log.append_as_leader(batch(b"other"), leader_epoch=1, now_ms=NOW)
    finish(log, flush)
    assert log.recovery_point <= 1
    finish(log, log.begin_flush())
    assert log.recovery_point == 2


def test_a_truncation_is_durable_beside_a_pass_that_has_not_fsynced_the_names() -> None:
    disk, log = start(segment_bytes=100)
    for _ in range(3):
        append(log, b"x" * 20)
    flush = log.begin_flush()
    log.truncate_to(3)
    disk.fsync_dir(".")
    assert open_log(disk.power_loss(Survive.NOTHING), config=log.config).log_end_offset == 3
    finish(log, flush)


def test_files_that_are_cut_off_under_a_pass_are_left_out() -> None:
    _, log = start(segment_bytes=100)
    for _ in range(4):
        append(log, b"x" * 20)
    flush = log.begin_flush()
    log.truncate_fully_and_start_at(9)
    finish(log, flush)
    assert append(log, b"y") == 9
    assert log.recovery_point <= 9


def test_a_pass_whose_files_retention_closes_goes_on() -> None:
    disk, log = start(segment_bytes=100, retention_bytes=0, file_delete_delay_ms=0)
    for _ in range(2):
        append(log, b"x" * 20)
    flush = log.begin_flush()
    assert log.retire(NOW) == 4
    delete_files(disk, log.purge(NOW))
    assert not disk.exists("data/t-0/00000000000000000000.log")
    finish(log, flush)
    assert log.recovery_point == 4


def test_a_log_that_is_closed_under_a_pass() -> None:
    _, log = start()
    flush = log.begin_flush()
    log.close(clean=False)
    finish(log, flush)
    with pytest.raises(KafkaError):
        log.begin_flush()


def test_passes_of_many_logs_share_the_directory() -> None:
    disk = MemoryDisk()
    logs = [open_log(disk, path=f"data/t-{number}") for number in range(3)]
    for log in logs:
        append(log, b"x")
    before = len(disk.calls)
    sync(disk, "data", [log.begin_flush() for log in logs])
    found = synced(disk.calls[before:])
    assert found.count("data") == 1
    assert [path for path in found if path.endswith(".log")] == [
        f"data/t-{number}/00000000000000000000.log" for number in range(3)
    ]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_is_never_tried_again(code: int) -> None:
    """Also if the disk was only full: earlier writes may be lost, and the next fsync would succeed."""
    disk, log = start()
    disk.fail_next("fsync", code, path_contains=".log")
    flush = log.begin_flush()
    with pytest.raises(OSError) as failed:
        sync(disk, "data", [flush])
    assert not log.files.flush_failed(failed.value).is_full
    before = len(disk.calls)
    with pytest.raises(StorageError):
        log.begin_flush()
    with pytest.raises(StorageError):
        append(log, b"three")
    log.close(clean=True)
    assert synced(disk.calls[before:]) == []
    assert log.recovery_point == 0


def test_a_truncation_whose_fsync_finds_the_disk_full_is_final() -> None:
    disk, log = start()
    disk.fail_next("fsync", errno.ENOSPC, path_contains=".log")
    with pytest.raises(StorageError) as told:
        log.truncate_to(1)
    assert not told.value.is_full
    with pytest.raises(StorageError):
        append(log, b"three")
