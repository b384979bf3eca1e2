"""A file with more than one name never changes: a change under one name happens in a copy."""

from __future__ import annotations

import mmap
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from pykbroker_log.disk import Disk, read_file, write_new
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import DiskCall, MemoryDisk
from pykbroker_log.os_disk import links
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import NOW, batch, check_consistent, open_log, values
from testkit.logs.power_loss import Workload
from testkit.logs.prefixes import crashes
from tests.log.compacting import compact, put

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=300, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
Place = tuple[Disk, str]


@pytest.fixture(params=[OsDisk, VolatileDisk, MemoryDisk])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Place:
    disk: Disk = request.param()
    root = f"{tmp_path}/root"
    disk.make_dirs(root)
    return disk, root


def linked(place: Place, data: bytes = b"0123456789") -> tuple[Disk, str, str]:
    disk, root = place
    write_new(disk, f"{root}/a", data)
    disk.link(f"{root}/a", f"{root}/b")
    return disk, f"{root}/a", f"{root}/b"


CHANGES: dict[str, tuple[Callable[[Disk, str], object], bytes]] = {
    "cut": (lambda disk, path: disk.open(path).truncate(3), b"012"),
    "grown": (lambda disk, path: disk.open(path).truncate(12), b"0123456789\0\0"),
    "emptied": (lambda disk, path: disk.open(path).truncate(0), b""),
    "written over": (lambda disk, path: disk.open(path).pwritev([b"ab", b"c"], 2), b"01abc56789"),
    "appended to": (lambda disk, path: disk.open(path).pwritev([b"!"], 10), b"0123456789!"),
    "written anew": (lambda disk, path: write_new(disk, path, b"new"), b"new"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [0, 1])
def test_a_change_under_one_name_leaves_the_other(place: Place, change: str, name: int) -> None:
    disk, *paths = linked(place)
    act, expected = CHANGES[change]
    act(disk, paths[name])
    assert read_file(disk, paths[name]) == expected
    assert read_file(disk, paths[1 - name]) == b"0123456789"
    assert disk.list(place[1]) == ["a", "b"]


def test_a_file_that_was_written_to_before_it_was_linked(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.pwritev([b"0123"], 0)
    disk.link(f"{root}/a", f"{root}/b")
    file.pwritev([b"45"], 4)
    file.pwritev([b"67"], 6)
    file.fsync()
    assert (read_file(disk, f"{root}/a"), read_file(disk, f"{root}/b")) == (b"01234567", b"0123")
    assert file.pread(10, 0) == b"01234567"


def test_another_open_file_of_the_name_goes_over_to_the_copy(place: Place) -> None:
    disk, first, second = linked(place)
    one, other = disk.open(first), disk.open(first)
    assert other.pread(2, 0) == b"01"
    one.truncate(4)
    other.pwritev([b"xy"], 1)
    assert (read_file(disk, first), read_file(disk, second)) == (b"0xy3", b"0123456789")


def test_a_file_that_has_lost_its_name_to_another_is_not_written_to(place: Place) -> None:
    disk, first, second = linked(place)
    file = disk.open(first)
    disk.unlink(first)
    with pytest.raises(FileNotFoundError):
        file.pwritev([b"x"], 0)
    assert read_file(disk, second) == b"0123456789"


def test_the_last_name_is_written_to_in_place(tmp_path: pathlib.Path) -> None:
    disk, first, second = linked((OsDisk(), str(tmp_path)))
    number = os.stat(first).st_ino
    disk.unlink(second)
    disk.open(first).truncate(3)
    assert os.stat(first).st_ino == number


def test_a_copy_is_a_file_of_its_own(place: Place) -> None:
    disk, root = place
    write_new(disk, f"{root}/a", b"0123456789" * 30_000)
    assert disk.copy(f"{root}/a", f"{root}/b") in (300_000, 0)
    disk.open(f"{root}/b").truncate(10)
    assert len(read_file(disk, f"{root}/a")) == 300_000
    assert read_file(disk, f"{root}/b") == b"0123456789"
    with pytest.raises(FileExistsError):
        disk.copy(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        disk.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        disk.copy(f"{root}/missing", f"{root}/c")
    assert disk.list(root) == ["a", "b"]


def test_a_copy_keeps_the_time_of_change(tmp_path: pathlib.Path) -> None:
    disk, path = OsDisk(), f"{tmp_path}/a"
    write_new(disk, path, b"x")
    os.utime(path, ns=(5_000_000_000, 7_000_000_000))
    disk.copy(path, f"{tmp_path}/b", keeps_time=True)
    disk.copy(path, f"{tmp_path}/c")
    assert disk.modified_ms(f"{tmp_path}/b") == 7_000
    assert disk.modified_ms(f"{tmp_path}/c") > 7_000


def test_a_copy_keeps_the_mode(tmp_path: pathlib.Path) -> None:
    disk, first, second = linked((OsDisk(), str(tmp_path)))
    os.chmod(first, 0o640)
    disk.open(first).truncate(3)
    assert os.stat(first).st_mode == os.stat(second).st_mode


def test_a_copy_without_help_of_the_kernel(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(7).randbytes(3_000_000)
    write_new(OsDisk(), f"{tmp_path}/a", data)
    monkeypatch.setattr(links, "_COPY_IN_KERNEL", None)
    OsDisk().copy(f"{tmp_path}/a", f"{tmp_path}/b")
    assert (tmp_path / "b").read_bytes() == data


def test_a_copy_that_fails_leaves_the_name_free(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "no space left")

    disk, first, second = linked((OsDisk(), str(tmp_path)))
    monkeypatch.setattr(links, "_fill", fail)
    with pytest.raises(OSError, match="no space"):
        disk.copy(first, f"{tmp_path}/c")
    with pytest.raises(OSError, match="no space"):
        disk.open(first).truncate(3)
    assert disk.list(str(tmp_path)) == ["a", "b"]
    assert os.path.samefile(first, second)


@pytest.mark.slow
def test_a_map_of_the_other_name_stays_readable(tmp_path: pathlib.Path) -> None:
    """A map of a file that is cut kills its process, so another process holds it."""
    disk, first, second = linked((OsDisk(), str(tmp_path)), b"x" * (3 * mmap.PAGESIZE))
    script = """
import mmap, sys
file = open(sys.argv[1], "rb")
view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("mapped", flush=True)
sys.stdin.readline()
print(view[-1])
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script, second], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "mapped\n"
    disk.open(first).truncate(1)
    answer, _ = child.communicate("read\n", timeout=60)
    assert (child.returncode, answer) == (0, f"{ord('x')}\n")


def test_links_after_a_loss_of_power() -> None:
    disk = MemoryDisk()
    disk.make_dirs("d")
    write_new(disk, "d/a", b"0123")
    disk.link("d/a", "d/b")
    disk.sync_all("d")
    disk.fsync_dir(".")
    after = disk.power_loss()
    after.open("d/a").truncate(1)
    assert dict(after.contents()) == {"d/a": b"0", "d/b": b"0123"}
    assert after.used_bytes == 5


def test_a_change_of_a_linked_file_is_whole_or_not_there_after_a_loss_of_power() -> None:
    base = MemoryDisk()
    base.make_dirs("d")
    write_new(base, "d/a", b"0123456789")
    base.link("d/a", "d/b")
    base.sync_all("d")
    base.fsync_dir(".")
    start = len(base.calls)
    base.open("d/a").truncate(4)
    found = set()
    calls: list[DiskCall] = base.calls
    for seed in range(20):
        for crash in crashes(calls, random.Random(seed), every_mode=True):
            if crash.calls <= start:
                continue
            contents = dict(crash.disk.contents())
            assert contents["d/b"] == b"0123456789", crash.what
            assert contents.keys() <= {"d/a", "d/b", "d/a.tmp"}, crash.what
            found.add(contents["d/a"])
    assert found == {b"0123456789", b"0123"}


# -- whole logs


def link_folder(disk: Disk, source: str, target: str) -> dict[str, bytes]:
    """Give every file of a folder a second name. Return the contents."""
    disk.make_dirs(target)
    for name in disk.list(source):
        disk.link(f"{source}/{name}", f"{target}/{name}")
    return {name: read_file(disk, f"{target}/{name}") for name in disk.list(target)}


def filled(disk: Disk, path: str, config: LogConfig = SMALL) -> PartitionLog:
    log = open_log(disk, path=path, config=config)
    for number in range(12):
        data = batch(b"%d" % number * 30, pid=1, epoch=0, seq=number)
        log.append_as_leader(data, leader_epoch=number // 4, now_ms=NOW)
    log.set_high_watermark(12)
    log.flush()
    return log


def cut_in_the_middle(disk: Disk, path: str) -> None:
    log = open_log(disk, path=path, config=SMALL, clean=True, recovery_point=12, high_watermark=12)
    log.truncate_to(5)
    for number in range(20, 24):
        log.append_as_leader(batch(b"%d" % number * 20), leader_epoch=9, now_ms=NOW)
    check_consistent(log)
    log.close(clean=True)


def cut_at_the_end_of_a_segment(disk: Disk, path: str) -> None:
    log = open_log(disk, path=path, config=SMALL, clean=True, recovery_point=12, high_watermark=12)
    log.truncate_to(log.files.segments[2].base_offset)
    log.append_as_leader(batch(b"after"), leader_epoch=9, now_ms=NOW)
    check_consistent(log)
    log.close(clean=True)


def emptied(disk: Disk, path: str) -> None:
    log = open_log(disk, path=path, config=SMALL, clean=True, recovery_point=12, high_watermark=12)
    log.truncate_fully_and_start_at(0)
    log.append_as_leader(batch(b"anew"), leader_epoch=9, now_ms=NOW)
    log.close(clean=True)


def recovered(disk: Disk, path: str) -> None:
    log = open_log(disk, path=path, config=SMALL)
    assert len(values(log)) == 12
    check_consistent(log)
    log.close(clean=True)


def recovered_after_damage(disk: Disk, path: str) -> None:
    """The damage itself goes through the disk, so it does not reach the other name either."""
    middle = sorted(name for name in disk.list(path) if name.endswith(".log"))[2]
    disk.open(f"{path}/{middle}").pwritev([b"\xff" * 8], 40)
    log = open_log(disk, path=path, config=SMALL)
    assert len(values(log)) < 12
    log.append_as_leader(batch(b"after"), leader_epoch=9, now_ms=NOW)
    log.close(clean=True)


def rebuilt_indexes(disk: Disk, path: str) -> None:
    for name in disk.list(path):
        if name.endswith(("index", ".snapshot")):
            disk.open(f"{path}/{name}").truncate(1)
    log = open_log(disk, path=path, config=SMALL, clean=True, recovery_point=12, high_watermark=12)
    check_consistent(log)
    log.close(clean=True)


def retired(disk: Disk, path: str) -> None:
    log = open_log(disk, path=path, config=SMALL, clean=True, recovery_point=12, high_watermark=12)
    log.delete_records_before(6)
    log.retire(NOW)
    for each in log.purge(NOW + 10**9):
        disk.unlink(each)
    log.close(clean=True)


@pytest.mark.parametrize(
    "operation",
    [cut_in_the_middle, cut_at_the_end_of_a_segment, emptied, recovered, recovered_after_damage, rebuilt_indexes,
     retired],
    ids=lambda operation: operation.__name__,
)  # fmt: skip
def test_no_operation_of_a_log_reaches_the_other_names(place: Place, operation: Callable[[Disk, str], None]) -> None:
    disk, root = place
    source, fork = f"{root}/t-0", f"{root}/fork"
    filled(disk, source).close(clean=True)
    before = link_folder(disk, source, fork)
    operation(disk, source)
    assert {name: read_file(disk, f"{fork}/{name}") for name in disk.list(fork)} == before


def test_an_open_log_whose_files_are_linked(place: Place) -> None:
    disk, root = place
    source, fork = f"{root}/t-0", f"{root}/fork"
    log = filled(disk, source)
    before = link_folder(disk, source, fork)
    log.truncate_to(7)
    for number in range(30, 40):
        log.append_as_leader(batch(b"%d" % number * 20), leader_epoch=9, now_ms=NOW)
    log.flush()
    check_consistent(log)
    log.close(clean=True)
    assert {name: read_file(disk, f"{fork}/{name}") for name in disk.list(fork)} == before


def test_compaction_does_not_reach_the_other_names(place: Place) -> None:
    disk, root = place
    source, fork = f"{root}/t-0", f"{root}/fork"
    log = open_log(disk, path=source, config=COMPACTED)
    for number in range(24):
        put(log, (b"%d" % (number % 3), b"%d" % number * 10))
    log.flush()
    before = link_folder(disk, source, fork)
    assert compact(log) is not None
    log.close(clean=True)
    assert {name: read_file(disk, f"{fork}/{name}") for name in disk.list(fork)} == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_random_workload_on_linked_files(seed: int) -> None:
    """The workload truncates, rolls, retires and restarts at random, and power fails at each of its calls."""
    work = Workload(seed)
    work.run(40)
    disk = work.disk
    before = link_folder(disk, "data/t-0", "fork")
    disk.sync_all("fork")
    disk.fsync_dir(".")
    linked_at = len(disk.calls)
    for _ in range(40):
        work.now += 10
        (operation,) = work.rng.choices(list(work.operations()), list(work.operations().values()))
        operation()
    for crash in crashes(disk.calls, random.Random(seed)):
        if crash.calls >= linked_at:
            fork = {path.removeprefix("fork/"): data for path, data in crash.disk.contents() if path.startswith("fork")}
            assert fork == before, crash.what
