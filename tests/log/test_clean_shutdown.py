"""The file of a clean stop: it survives a start that changes nothing, and no start after a changed log finds it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from pykbroker_log.disk import read_file
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.names import CLEAN_SHUTDOWN
from testkit.logs.helpers import NOW, TOPIC_ID, append, values
from testkit.logs.prefixes import copy_of, crashes

SIGN = f"data/{CLEAN_SHUTDOWN}"
KEPT = {0: b"kept", 1: b"kept too"}


def open_dir(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk, "data", b"d" * 16, NOW)


def open_log(log_dir: LogDir) -> None:
    log_dir.open_log("t", 0, TOPIC_ID, LogConfig(), NOW)


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk after a clean stop in epoch 14, with a log, the folder of a deleted one, and an unfinished copy."""
    disk = MemoryDisk()
    disk.make_dirs("data/u-0.00000000000000000000000000000001-delete")
    disk.make_dirs("data/v-0.00000000000000000000000000000002-future")
    log_dir = open_dir(disk)
    append(log_dir.open_log("t", 0, TOPIC_ID, LogConfig(), NOW), *KEPT.values())
    log_dir.close(clean=True, broker_epoch=14)
    return copy_of(disk)


def sign_of(disk: MemoryDisk) -> bytes | None:
    return read_file(disk, SIGN) if disk.exists(SIGN) else None


@pytest.mark.parametrize("end", ["clean", "unclean", "crash"])
def test_a_run_that_changes_nothing_leaves_the_sign_as_it_was(disk: MemoryDisk, end: str) -> None:
    log_dir = open_dir(disk)
    if end != "crash":
        log_dir.close(clean=end == "clean")
    after = open_dir(disk.power_loss(Survive.EVERYTHING if end == "crash" else Survive.NOTHING))
    assert after.sign.was_clean
    assert after.sign.broker_epoch == 14


@pytest.mark.parametrize("clean", [True, False])
def test_a_run_that_was_registered_and_changes_nothing_keeps_the_sign_with_its_own_epoch(
    disk: MemoryDisk, clean: bool
) -> None:
    open_dir(disk).close(clean=clean, broker_epoch=20)
    assert sign_of(disk.power_loss()) == b'{"version":0,"brokerEpoch":20}'


def test_a_run_after_a_crash_makes_no_sign_unless_its_logs_were_recovered(disk: MemoryDisk) -> None:
    disk.unlink(SIGN)
    open_dir(disk).close(clean=True, broker_epoch=20)
    assert sign_of(disk) is None


def test_a_directory_that_failed_keeps_no_sign_for_a_new_epoch(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    log_dir.take_offline()
    log_dir.close(clean=True, broker_epoch=20)
    assert sign_of(disk) == b'{"version":0,"brokerEpoch":14}'


def _promote(log_dir: LogDir) -> None:
    log_dir.promote_future("v", 0)


def _doom(log_dir: LogDir) -> None:
    log_dir.folders.doom(log_dir.release_future("v", 0))


CHANGES: dict[str, Callable[[LogDir], object]] = {
    "a log is opened": open_log,
    "a stray is set aside": lambda log_dir: log_dir.set_strays_aside(lambda *_: False),
    "a twin is set aside": lambda log_dir: log_dir.set_aside("t", 0, "of a test"),
    "a folder is marked deleted": lambda log_dir: log_dir.mark_deleted("t", 0),
    "a deleted folder goes": lambda log_dir: log_dir.folders.delete(log_dir.folders.leftovers[0]),
    "a copy becomes the log": _promote,
    "a copy is given up": _doom,
    "checkpoints are written": lambda log_dir: log_dir.checkpoints.write_all(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_sign_is_durably_gone_before_the_first_change(disk: MemoryDisk, what: str) -> None:
    base = copy_of(disk)
    before = _without_sign(base)
    log_dir = open_dir(disk)
    CHANGES[what](log_dir)
    assert sign_of(disk) is None
    for crash in crashes(disk.calls, random.Random(1), every_mode=True, base=base):
        assert sign_of(crash.disk) is None or _without_sign(crash.disk) == before, crash.what


def _without_sign(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.contents() if path not in (SIGN, "data/.lock")}


@pytest.mark.parametrize("operation", ["unlink", "fsync_dir"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("what", CHANGES)
def test_nothing_changes_while_the_sign_cannot_be_taken_away(
    disk: MemoryDisk, what: str, operation: str, error: int
) -> None:
    log_dir = open_dir(disk)
    before = _without_sign(disk)
    disk.fail_next(operation, error)
    with pytest.raises(StorageError):
        CHANGES[what](log_dir)
    assert _without_sign(disk) == before


def test_an_unlink_whose_fsync_failed_is_made_durable_by_the_next_try(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    disk.fail_next("fsync_dir")
    with pytest.raises(StorageError):
        log_dir.claim()
    assert sign_of(disk) is None
    assert sign_of(disk.power_loss(Survive.NOTHING)) is not None
    log_dir.claim()
    assert sign_of(disk.power_loss(Survive.NOTHING)) is None


def test_power_fails_at_every_moment_of_a_start_and_a_stop(disk: MemoryDisk) -> None:
    """A start that finds the file finds a log as after a clean stop; any other start finds what was durable."""
    base = copy_of(disk)
    log_dir = open_dir(disk)
    log_dir.claim()
    claimed = len(disk.calls)
    log = log_dir.open_log("t", 0, TOPIC_ID, LogConfig(), NOW)
    append(log, b"new")
    log.flush()
    log_dir.close(clean=True, broker_epoch=20)
    found = set()
    for crash in crashes(disk.calls, random.Random(2), every_mode=True, base=base):
        again = open_dir(crash.disk)
        opened = again.open_log("t", 0, TOPIC_ID, LogConfig(), NOW)
        held = values(opened)
        found.add(again.sign.broker_epoch)
        match again.sign.broker_epoch:
            case 14:
                assert crash.calls <= claimed, crash.what
                assert held == KEPT, crash.what
            case 20:
                assert held == {**KEPT, 2: b"new"}, crash.what
            case _:
                assert held in (KEPT, {**KEPT, 2: b"new"}), crash.what
    assert found == {14, 20, -1}
