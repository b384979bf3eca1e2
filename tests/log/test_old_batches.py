"""Logs with record batches of magic 0 or 1: refused, and never cut off."""

from __future__ import annotations

import pytest

from pykbroker.runtime.workers import finish
from pykbroker_log.disk import read_file, write_new
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.old_batches import old_magic_of
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery_job import Unrecovered, recover
from testkit.logs.helpers import NOW, TOPIC_ID, append, batch, values
from testkit.logs.old_batches import OLD_BATCHES, old_batches

FOLDER = "data/t-0"
CONFIG = LogConfig(segment_bytes=150)
ACTIVE = f"{FOLDER}/{4:020}.log"


def opened(disk: MemoryDisk) -> tuple[LogDir, PartitionLog]:
    log_dir = LogDir.open(disk, "data", b"d" * 16, NOW)
    return log_dir, log_dir.open_log("t", 0, TOPIC_ID, CONFIG, NOW)


def written(*, clean: bool) -> MemoryDisk:
    """A log of three segments of two records each."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    log_dir, log = opened(disk)
    for _ in range(3):
        append(log, b"x" * 20, b"y" * 20)
    log_dir.close(clean=clean)
    assert [name for name in disk.list(FOLDER) if name.endswith(".log")] == [f"{base:020}.log" for base in (0, 2, 4)]
    return disk


def replace(disk: MemoryDisk, path: str, data: bytes) -> None:
    disk.unlink(path)
    write_new(disk, path, data)


def logs(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: read_file(disk, f"{FOLDER}/{name}") for name in disk.list(FOLDER) if ".log" in name}


def refused(disk: MemoryDisk, magic: int) -> None:
    before = logs(disk)
    with pytest.raises(StorageError, match=f"record batches of magic {magic} are not served"):
        opened(disk)
    assert logs(disk) == before


@pytest.mark.parametrize(("magic", "compression"), OLD_BATCHES)
def test_they_are_recognized_by_their_front(magic: int, compression: str) -> None:
    data = OLD_BATCHES[magic, compression]
    assert old_magic_of(data[:17], len(data)) == magic
    assert old_magic_of(data[:16], len(data)) is None
    # The batch is cut off in its first record.
    assert old_magic_of(data[:17], 30) is None


def test_other_bytes_are_no_old_batch() -> None:
    assert old_magic_of(bytes(17), 1000) is None
    assert old_magic_of(bytes(batch(b"x"))[:17], 1000) is None
    assert old_magic_of(b"", 0) is None


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_an_active_segment_of_them_is_not_cut_off(clean: bool, magic: int) -> None:
    """The start removed the records, because they are no batches of magic 2."""
    disk = written(clean=clean)
    replace(disk, ACTIVE, old_batches(magic, 4))
    refused(disk, magic)


@pytest.mark.parametrize("clean", [True, False])
def test_they_come_after_batches_of_magic_2(clean: bool) -> None:
    """log.message.format.version was lowered once."""
    disk = written(clean=clean)
    replace(disk, ACTIVE, read_file(disk, ACTIVE) + old_batches(1, 6))
    refused(disk, 1)


def test_the_oldest_segment_after_an_upgrade() -> None:
    """Old batches have no leader epoch. So the first entry of the epochs comes after them, and the loader looks for the
    epochs before it."""
    disk = written(clean=True)
    replace(disk, f"{FOLDER}/{0:020}.log", old_batches(1, 0))
    replace(disk, f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 2\n")
    refused(disk, 1)


def test_the_recovery_in_a_worker_refuses_them_too() -> None:
    disk = written(clean=False)
    replace(disk, ACTIVE, old_batches(0, 4))
    before = logs(disk)
    with pytest.raises(OSError, match="magic 0"):
        finish(recover, disk, [Unrecovered(FOLDER, CONFIG, 0, 0, DEFAULT_EXPIRATION_MS, NOW, dense=True)])
    assert logs(disk) == before


def test_a_damaged_one_is_cut_off_as_any_other_damage() -> None:
    disk = written(clean=True)
    data = bytearray(old_batches(1, 4))
    data[20] ^= 1
    replace(disk, ACTIVE, bytes(data))
    _, log = opened(disk)
    log.set_high_watermark(log.log_end_offset)
    assert sorted(values(log)) == [0, 1, 2, 3]
    assert read_file(disk, ACTIVE) == b""
