"""The disks behave alike, and the memory disk loses exactly what was not synced."""

from __future__ import annotations

import errno
import itertools
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pykbroker_log.disk import Disk, FileClosed, read_file, remove_tree, sync_path, write_atomic
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.os_disk import files
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.volatile import VolatileDisk


@pytest.fixture(params=[OsDisk, VolatileDisk, MemoryDisk])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[Disk, str]:
    disk: Disk = request.param()
    root = f"{tmp_path}/root"
    disk.make_dirs(root)
    return disk, root


def test_files(place: tuple[Disk, str]) -> None:
    disk, root = place
    path = f"{root}/a"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    file = disk.open(path, create=True)
    assert file.pwritev([b"hello", memoryview(b" "), bytearray(b"world")], 0) == 11
    assert file.pwritev([b"!"], 12) == 1
    assert file.pread(100, 0) == b"hello world\0!"
    assert file.pread(3, 4) == b"o w"
    assert file.pread(3, 100) == b""
    file.fsync()
    file.truncate(5)
    assert file.size() == 5
    file.close()
    assert read_file(disk, path) == b"hello"
    region = disk.open(path).region(1, 3)
    assert region is None or (len(region), region.pread(9, 1)) == (3, b"ll")


def test_what_is_missing_cannot_be_synced(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.close()
    with pytest.raises(FileClosed):
        file.fsync()
    disk.fsync_files([file])
    with pytest.raises(FileNotFoundError):
        disk.fsync_dir(f"{root}/missing")
    assert list(disk.fsync_dirs([root, f"{root}/missing"])) == [f"{root}/missing"]


def test_a_volatile_disk_waits_for_no_device(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    for module, name in ((os, "fsync"), (files, "_sync")):
        monkeypatch.setattr(module, name, synced.append)
    counts = []
    for disk in (OsDisk(), VolatileDisk()):
        path = f"{tmp_path}/{type(disk).__name__}"
        write_atomic(disk, path, b"1")
        sync_path(disk, path)
        disk.fsync_files([disk.open(path)])
        disk.fsync_dirs([str(tmp_path)])
        counts.append(len(synced))
    assert counts == [5, 5]


def test_more_buffers_than_one_call_takes(place: tuple[Disk, str]) -> None:
    disk, root = place
    file = disk.open(f"{root}/many", create=True)
    assert file.pwritev([b"xy"] * 3000, 1) == 6000
    assert file.pread(7000, 1) == b"xy" * 3000
    file.close()


def test_names(place: tuple[Disk, str]) -> None:
    disk, root = place
    disk.make_dirs(f"{root}/d/e")
    assert disk.is_dir(f"{root}/d/e")
    write_atomic(disk, f"{root}/d/x", b"1")
    write_atomic(disk, f"{root}/d/x", b"2")
    assert read_file(disk, f"{root}/d/x") == b"2"
    assert disk.list(f"{root}/d") == ["e", "x"]
    with pytest.raises(OSError):
        disk.remove_dir(f"{root}/d")
    disk.rename(f"{root}/d", f"{root}/f")
    disk.fsync_dir(root)
    assert not disk.exists(f"{root}/d")
    remove_tree(disk, f"{root}/f")
    assert disk.list(root) == []
    with pytest.raises(FileNotFoundError):
        disk.list(f"{root}/f")
    total, usable = disk.usage(root)
    assert total >= usable > 0


def test_a_lock_excludes_the_same_process(place: tuple[Disk, str]) -> None:
    disk, root = place
    lock = disk.lock(f"{root}/.lock")
    with pytest.raises(OSError):
        disk.lock(f"{root}/.lock")
    lock.release()
    disk.lock(f"{root}/.lock").release()


def test_a_region_outlives_its_file(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    path = f"{tmp_path}/f"
    file = disk.open(path, create=True)
    file.pwritev([b"x" * 9990 + b"y" * 10], 0)
    region = file.region(9000, 1000)
    assert region is not None
    file.close()
    disk.rename(path, path + ".deleted")
    disk.unlink(path + ".deleted")
    assert (len(region), disk.descriptors.lent) == (1000, 1)
    assert region.pread(99, 985) == b"x" * 5 + b"y" * 10
    here, there = socket.socketpair()
    assert region.send(here.fileno(), 985, 15) == 15
    assert there.recv(99) == b"x" * 5 + b"y" * 10
    del region
    assert not disk.descriptors.lent
    assert not disk.descriptors


def test_what_was_cut_off_a_region_comes_back_short(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    file.pwritev([b"x" * 10000], 0)
    region = file.region(0, 10000)
    assert region is not None
    file.truncate(5000)
    here, _there = socket.socketpair()
    assert region.send(here.fileno(), 4000, 6000) == 1000
    assert region.pread(10, 4995) == b"x" * 5
    region.load(0, 10000)
    with pytest.raises(OSError, match="shorter"):
        region.send(here.fileno(), 5000, 5000)


def test_power_loss_keeps_what_was_synced() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    file = disk.open("data/a", create=True)
    file.pwritev([b"first"], 0)
    file.fsync()
    assert disk.power_loss().list("data") == []  # the name was not synced
    disk.fsync_dir("data")
    file.pwritev([b"second"], 5)
    disk.rename("data/a", "data/b")
    assert read_file(disk.power_loss(), "data/a") == b"first"
    assert read_file(disk.power_loss(Survive.EVERYTHING), "data/b") == b"firstsecond"
    disk.fsync_dir("data")
    assert disk.power_loss().list("data") == ["b"]
    assert read_file(disk.power_loss(), "data/b") == b"first"


def test_power_loss_tears_the_last_write() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    disk.fsync_dir(".")
    file.pwritev([b"one"], 0)
    file.pwritev([b"twotwo"], 3)
    assert read_file(disk.power_loss(Survive.EVERYTHING, torn=True), "a") == b"onetwo"
    assert read_file(disk.power_loss(torn=True), "a") == b"\0\0\0two"
    file.fsync()
    assert read_file(disk.power_loss(torn=True), "a") == b"onetwotwo"


def draws(seed: int) -> Callable[[int], int]:
    numbers = itertools.count(seed, 7)
    return lambda bound: next(numbers) % bound


def test_chosen_is_between_nothing_and_everything() -> None:
    disk = MemoryDisk()
    file = disk.open("a", create=True)
    disk.fsync_dir(".")
    for index in range(5):
        file.pwritev([bytes([65 + index]) * 10], index * 10)
    whole = read_file(disk, "a")
    seen = set()
    for seed in range(100):
        data = read_file(disk.power_loss(Survive.CHOSEN, choose=draws(seed)), "a")
        assert whole.startswith(data.rstrip(b"\0"))
        seen.add(data)
    assert len(seen) > 5


def _next_of(choices: Iterator[int], bound: int) -> int:
    return next(choices, 0)


def test_a_journal_keeps_what_happened_in_a_folder_in_order() -> None:
    disk = MemoryDisk()
    for name in ("a", "b", "c"):
        disk.open(name, create=True)
    for kept in range(4):
        choices = iter([kept])
        after = disk.power_loss(Survive.IN_ORDER, choose=partial(_next_of, choices))
        assert [name for name in ("a", "b", "c") if after.exists(name)] == ["a", "b", "c"][:kept]


def test_a_replayed_prefix_is_the_disk_at_that_moment() -> None:
    disk = MemoryDisk()
    disk.make_dirs("d")
    file = disk.open("d/a", create=True)
    file.pwritev([b"12345"], 0)
    file.truncate(2)
    disk.rename("d/a", "d/b")
    disk.unlink("d/b")
    lists = []
    for count in range(len(disk.calls) + 1):
        prefix = MemoryDisk.replay(disk.calls[:count])
        lists.append(prefix.list("d") if prefix.exists("d") else None)
    assert lists == [None, [], ["a"], ["a"], ["a"], ["b"], []]


def test_faults() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("a", create=True)
    file.pwritev([b"12345678"], 0)
    with pytest.raises(OSError) as full:
        file.pwritev([b"abcd"], 8)
    assert full.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"12345678ab"
    disk.fail_next("fsync", errno.EIO, skip=1)
    file.fsync()
    with pytest.raises(OSError):
        file.fsync()
    file.fsync()
    disk.fail_next("pread", path_contains="b", count=None)
    assert file.pread(1, 0) == b"1"
    disk.fail_next("pread", count=None)
    for _ in range(3):
        with pytest.raises(OSError):
            file.pread(1, 0)
    disk.heal()
    assert file.pread(1, 0) == b"1"


def test_more_files_than_descriptors(tmp_path: pathlib.Path) -> None:
    disk = OsDisk(max_open_files=8)
    before = len(list(pathlib.Path("/proc/self/fd").iterdir())) if pathlib.Path("/proc/self/fd").exists() else 0
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(100)]
    for turn in range(3):
        for index, file in enumerate(files):
            file.pwritev([b"%03d" % index], turn * 3)
    regions: list[object] = []  # of connections that are slow
    for index, file in enumerate(files):
        assert file.pread(9, 0) == b"%03d" % index * 3
        region = file.region(0, 9)
        assert (region is None) == (index >= 4)
        regions.append(region)
    if before:
        assert len(list(pathlib.Path("/proc/self/fd").iterdir())) <= before + 8 + 1
    for file in files:
        file.close()
    assert len(disk.descriptors) == disk.descriptors.lent == 4
    regions.clear()
    if before:
        assert len(list(pathlib.Path("/proc/self/fd").iterdir())) <= before + 1


@pytest.mark.slow
def test_descriptors_are_never_mixed_up_between_threads(tmp_path: pathlib.Path) -> None:
    disk = OsDisk(max_open_files=8)
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(30)]
    wrong: list[int] = []

    def work(first: int) -> None:
        for turn in range(400):
            index = (first + turn * 7) % len(files)
            files[index].pwritev([b"%04d" % index], 0)
            files[index].size()
            if files[index].pread(4, 0) != b"%04d" % index:
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for index, file in enumerate(files):
        assert file.pread(10, 0) in (b"%04d" % index, b"")
        file.close()
    assert not disk.descriptors


def test_a_file_closed_in_the_middle_of_a_call_lingers(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    in_a_call = file.take()  # in another thread
    file.close()
    assert list(disk.descriptors._open) == [in_a_call.fd]
    del in_a_call
    assert not disk.descriptors
