"""The plan of a fork, and a forked directory that is used while its source is used too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile
from pykbroker_log.disk import read_file, write_new
from pykbroker_log.forking import Forked, carry_out, metadata_files, partition_files, plan
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from testkit.logs.helpers import NOW, TOPIC_ID, batch, check_consistent, values

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)


def entries(bases: list[int], snapshots: list[int]) -> list[tuple[str, int]]:
    found = [names.segment_file(base, kind) for base in bases for kind in (names.LOG, *names.INDEXES)]
    found += [names.segment_file(offset, names.SNAPSHOT) for offset in snapshots]
    return [(name, 7) for name in sorted([*found, names.LEADER_EPOCHS, names.PARTITION_METADATA])]


@given(
    st.sets(st.integers(0, 60), min_size=1, max_size=8).map(sorted),
    st.sets(st.integers(0, 70), max_size=6).map(sorted),
    st.integers(0, 80),
)
def test_only_what_never_changes_is_linked(bases: list[int], snapshots: list[int], below: int) -> None:
    listed = entries(bases, snapshots)
    planned = list(partition_files(listed, below))
    assert [(file.name, file.size) for file in planned] == listed
    for file in planned:
        parsed = names.parse_segment_file(file.name)
        if parsed is None or parsed.kind in (names.OFFSET_INDEX, names.TIME_INDEX):
            assert not file.is_closed
        elif parsed.kind == names.SNAPSHOT:
            assert file.is_closed == (parsed.base_offset <= min(below, bases[-1]))
        else:
            later = [base for base in bases if base > parsed.base_offset]
            assert file.is_closed == (bool(later) and later[0] <= below)


def test_unfinished_and_deleted_files_are_left_out() -> None:
    listed = [
        ("00000000000000000000.log", 1),
        ("00000000000000000000.log.deleted", 1),
        ("00000000000000000005.log.swap", 1),
        ("00000000000000000005.log.tmp", 1),
        ("notes.txt", 1),
    ]
    planned = list(partition_files(listed, 100))
    assert [(file.name, file.is_closed) for file in planned] == [(listed[0][0], False), (listed[2][0], False)]
    kept = [file.name for file in metadata_files([("quorum-state", 1), ("a.tmp", 1), ("big", 1)], lambda n: n == "big")]
    assert kept == ["quorum-state"]


def filled(disk: MemoryDisk, *, clean: bool = True) -> LogDir:
    disk.make_dirs("data")
    log_dir = LogDir.open(disk, "data", b"d" * 16, NOW)
    for partition in (0, 1):
        log = log_dir.open_log("t", partition, TOPIC_ID, SMALL, NOW)
        for number in range(12):
            log.append_as_leader(
                batch(b"%d" % number * 30, pid=1, epoch=0, seq=number), leader_epoch=number // 4, now_ms=NOW
            )
        log.set_high_watermark(12 if partition == 0 else 5)
    log_dir.close(clean=clean)
    return log_dir


def forked(disk: MemoryDisk, *, may_link: bool = True) -> Forked:
    done = Forked()
    disk.make_dirs("fork")
    carry_out(disk, "data", "fork", plan(disk, "data"), done, may_link=may_link)
    disk.sync_all("fork")
    disk.fsync_dir(".")
    return done


def work(disk: MemoryDisk, path: str, name: bytes) -> None:
    """Cut, append, and stop cleanly."""
    log_dir = LogDir.open(disk, path, b"d" * 16, NOW)
    assert log_dir.sign.was_clean
    for partition in (0, 1):
        log = log_dir.open_log("t", partition, TOPIC_ID, SMALL, NOW)
        assert len(values(log)) == 12
        log.truncate_to(3)
        log.append_as_leader(batch(name * 20), leader_epoch=9, now_ms=NOW)
        check_consistent(log)
    log_dir.close(clean=True)


def contents(disk: MemoryDisk, path: str) -> dict[str, bytes]:
    return {name: data for name, data in disk.contents() if name.startswith(f"{path}/")}


@pytest.mark.parametrize("may_link", [True, False])
def test_source_and_fork_live_on_without_each_other(may_link: bool) -> None:
    disk = MemoryDisk()
    filled(disk)
    done = forked(disk, may_link=may_link)
    assert bool(done.linked_files) == may_link
    before = contents(disk, "data")
    work(disk, "fork", b"fork")
    assert contents(disk, "data") == before
    before = contents(disk, "fork")
    work(disk, "data", b"source")
    assert contents(disk, "fork") == before


def test_records_above_the_high_watermark_are_copied() -> None:
    disk = MemoryDisk()
    filled(disk)
    linked = {
        folder.name: [file.name for file in folder.files if file.is_closed and file.name.endswith(".log")]
        for folder in plan(disk, "data")
        if folder.name
    }
    assert len(linked["t-0"]) > len(linked["t-1"]) > 0


def test_the_bytes_that_are_written_are_counted() -> None:
    disk = MemoryDisk()
    filled(disk)
    start = len(disk.calls)
    done = forked(disk)
    assert done.written_bytes == sum(len(call.data) for call in disk.calls[start:] if call.operation == "pwritev")
    assert done.linked_files == sum(call.operation == "link" for call in disk.calls[start:])
    assert done.written_bytes + done.linked_bytes == sum(map(len, contents(disk, "fork").values()))


def test_after_an_unclean_stop_nothing_says_that_it_was_clean() -> None:
    disk = MemoryDisk()
    filled(disk, clean=False)
    done = forked(disk)
    assert done.linked_files == 0
    log_dir = LogDir.open(disk, "fork", b"d" * 16, NOW)
    assert not log_dir.sign.was_clean
    assert len(values(log_dir.open_log("t", 0, TOPIC_ID, SMALL, NOW))) == 12


def test_folders_of_deleted_and_stray_partitions_are_left_out() -> None:
    disk = MemoryDisk()
    log_dir = filled(disk)
    log_dir.set_aside("t", 1, "is a stray")
    disk.make_dirs("data/lost+found")
    assert [folder.name for folder in plan(disk, "data")] == ["t-0", ""]


def test_a_damaged_checkpoint_is_named() -> None:
    disk = MemoryDisk()
    filled(disk)
    write_new(disk, f"data/{names.HIGH_WATERMARKS}", b"0\n7\nt 0 1\n")
    with pytest.raises(MalformedFile, match=f"data/{names.HIGH_WATERMARKS} is damaged"):
        plan(disk, "data")
    assert read_file(disk, f"data/{names.RECOVERY_POINTS}")
