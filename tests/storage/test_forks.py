"""A loss of power in the middle of a fork: its name stands for nothing or for a whole fork, and the source is as it
was."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pykbroker.storage.forks import ForkError, ForkReport, Pair, Wanted, fork
from pykbroker_log import names
from pykbroker_log.checkpoints import encode_properties
from pykbroker_log.disk import write_new
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.metadata_storage import DIRECTORY
from pykbroker_wire.primitives import uuid_to_str
from testkit.logs.helpers import NOW, TOPIC_ID, batch, values
from testkit.logs.prefixes import crashes

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
NEW_ID = uuid_to_str(b"n" * 16)


def sources() -> MemoryDisk:
    """A node with two directories, `a` and `b`, one of them with its metadata log."""
    disk = MemoryDisk()
    for path in ("a", "b"):
        disk.make_dirs(path)
        own = {"cluster.id": uuid_to_str(b"c" * 16), "directory.id": uuid_to_str(path.encode() * 16), "node.id": "1"}
        write_new(disk, f"{path}/{names.META_PROPERTIES}", encode_properties({**own, "version": "1"}, NOW))
        log_dir = LogDir.open(disk, path, b"d" * 16, NOW)
        log = log_dir.open_log("t", ord(path), TOPIC_ID, SMALL, NOW)
        for number in range(12):
            log.append_as_leader(batch(b"%d" % number * 30), leader_epoch=0, now_ms=NOW)
        log.set_high_watermark(12)
        log_dir.close(clean=True)
    disk.make_dirs(f"a/{DIRECTORY}")
    write_new(disk, f"a/{DIRECTORY}/quorum-state", b"{}")
    for path in ("a", "b", "."):
        disk.sync_all(path)
    return disk


def forked(disk: MemoryDisk) -> ForkReport:
    wanted = Wanted([Pair("a", "x"), Pair("b", "y")], NEW_ID, may_link=True, now_ms=NOW)
    return fork(disk, wanted, lambda addresses: ())


def below(disk: MemoryDisk, *folders: str) -> dict[str, bytes]:
    """The files of some directories, without locks."""
    found: Iterator[tuple[str, bytes]] = disk.contents()
    return {path: data for path, data in found if path.split("/")[0] in folders and not path.endswith(names.LOCK)}


@pytest.mark.slow
def test_power_fails_at_every_call_of_a_fork() -> None:
    disk = sources()
    before = below(disk, "a", "b")
    start = len(disk.calls)
    assert forked(disk).forked.linked_files > 0
    whole = below(disk, "x", "y")
    seen = set()
    for seed in range(3):
        for crash in crashes(disk.calls, random.Random(seed)):
            if crash.calls < start:
                continue
            assert below(crash.disk, "a", "b") == before, crash.what
            there = [name for name in ("x", "y") if crash.disk.exists(name)]
            seen.add("".join(there))
            expected = {path: data for path, data in whole.items() if path.split("/")[0] in there}
            assert below(crash.disk, *there) == expected, crash.what
            if not there:
                # The next fork removes what is left of this one.
                forked(crash.disk)
                assert below(crash.disk, "x", "y") == whole, crash.what
                assert {path.split("/")[0] for path, _ in crash.disk.contents()} == {"a", "b", "x", "y"}, crash.what
    assert {"", "xy"} <= seen


@pytest.mark.parametrize("operation", ["link", "copy", "rename", "make_dir", "fsync_dir", "pwritev"])
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_a_call_that_fails_leaves_nothing(operation: str, skip: int) -> None:
    disk = sources()
    before = below(disk, "a", "b")
    disk.fail_next(operation, skip=skip)
    try:
        forked(disk)
    except OSError:
        assert {path.split("/")[0] for path, _ in disk.contents()} == {"a", "b"}
        assert not disk.exists("x")
        assert not disk.exists("y")
    else:
        # The fork makes fewer calls of this kind.
        assert operation == "rename"
        assert skip == 3
    assert below(disk, "a", "b") == before


def test_a_fork_has_the_records_and_the_new_id() -> None:
    disk = sources()
    report = forked(disk)
    assert (report.cluster_id, report.directories, report.is_clean) == (NEW_ID, 2, True)
    assert below(disk, "y")[f"y/{names.META_PROPERTIES}"].count(NEW_ID.encode()) == 1
    log_dir = LogDir.open(disk, "y", b"d" * 16, NOW)
    assert len(values(log_dir.open_log("t", ord("b"), TOPIC_ID, SMALL, NOW))) == 12


def test_two_forks_to_one_name_at_once() -> None:
    disk = sources()
    disk.make_dirs(".x.unfinished")
    lock = disk.lock(f".x.unfinished/{names.LOCK}")
    with pytest.raises(ForkError, match="another fork to x is under way"):
        forked(disk)
    lock.release()
