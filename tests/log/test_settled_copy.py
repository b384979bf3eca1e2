"""`LogDir.settle`: a copy that is made then, with the clean shutdown file, is the directory after a clean stop."""

from __future__ import annotations

import pytest

from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import NOW, TOPIC_ID, append, values
from testkit.logs.prefixes import copy_of

SMALL = LogConfig(segment_bytes=200)


def open_dir(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk, "data", b"d" * 16, NOW)


def open_log(log_dir: LogDir, config: LogConfig = SMALL) -> PartitionLog:
    return log_dir.open_log("t", 0, TOPIC_ID, config, NOW)


def marked_copy(disk: MemoryDisk) -> MemoryDisk:
    copy = copy_of(disk)
    CleanShutdown(copy, "data").write(7)
    return copy


@pytest.mark.parametrize("config", [SMALL, LogConfig()])
def test_a_start_on_the_copy_finds_everything_and_scans_nothing(config: LogConfig) -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    log_dir = open_dir(disk)
    log = open_log(log_dir, config)
    for number in range(20):
        append(log, b"%d" % number)
    log.high_watermark = 20
    assert log_dir.settle()
    copied = open_dir(marked_copy(disk))
    assert copied.sign.was_clean
    assert copied.sign.broker_epoch == 7
    again = open_log(copied, config)
    assert values(again) == values(log)
    assert again.recovery is None
    assert again.high_watermark == 20
    assert again.recovery_point == 20
    assert again.epochs.entries() == log.epochs.entries()


def test_the_log_goes_on_and_is_recovered_after_a_crash() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    log_dir = open_dir(disk)
    log = open_log(log_dir)
    written = []
    for number in range(10):
        append(log, b"%d" % number)
        written.append(b"%d" % number)
        assert log_dir.settle()
    assert list(values(log).values()) == written
    after = open_log(open_dir(disk.power_loss(Survive.EVERYTHING)))
    assert list(values(after).values()) == written
    append(after, b"more")
    assert list(values(after).values()) == [*written, b"more"]


def test_a_log_without_records_gets_no_files() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    log_dir = open_dir(disk)
    open_log(log_dir)
    before = disk.list("data/t-0")
    assert log_dir.settle()
    assert disk.list("data/t-0") == before


def test_a_directory_with_logs_that_were_not_recovered_needs_more_than_the_mark() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    append(open_log(open_dir(disk)), b"one")
    after = open_dir(disk.power_loss(Survive.EVERYTHING))
    assert not after.settle()
    open_log(after)
    assert after.settle()
