"""Fsync of many files at once on the real disk, with and without waiting: each file has its own result."""

from __future__ import annotations

import errno
import os
import pathlib
import select
import threading
from collections.abc import Sequence

import pytest

from pykbroker_log.disk import File, Fsyncs
from pykbroker_log.os_disk import disk_sync
from pykbroker_log.os_disk import files as os_files
from pykbroker_log.os_disk.disk import OsDisk


def some_files(disk: OsDisk, folder: pathlib.Path, count: int) -> list[File]:
    files: list[File] = [disk.open(f"{folder}/{number}", create=True) for number in range(count)]
    for file in files:
        file.pwritev([b"x" * 300], 0)
    return files


@pytest.fixture(params=["together", "one by one"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> OsDisk:
    if request.param == "one by one":
        monkeypatch.setattr(disk_sync, "_numbers", None)
    return OsDisk(max_open_files=20)


@pytest.fixture
def fsynced(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that the kernel fsyncs, together or one by one."""
    names: list[str] = []

    def note(descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        names.extend(path.name for path in tmp_path.iterdir() if path.stat().st_ino == inode)

    together, alone = disk_sync.Context.fsync, os_files._sync

    def all_at_once(context: disk_sync.Context, descriptors: Sequence[int], *, folders: bool = False) -> list[int]:
        results = together(context, descriptors, folders=folders)
        for descriptor, result in zip(descriptors, results, strict=True):
            if result == 0:
                note(descriptor)
        return results

    def one(descriptor: int) -> None:
        alone(descriptor)
        note(descriptor)

    monkeypatch.setattr(disk_sync.Context, "fsync", all_at_once)
    monkeypatch.setattr(os_files, "_sync", one)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2, 150])
def test_files_are_fsynced_however_many(disk: OsDisk, tmp_path: pathlib.Path, fsynced: list[str], count: int) -> None:
    files = some_files(disk, tmp_path, count)
    names = sorted(map(str, range(count)))
    for _ in range(2):
        disk.fsync_files(files)
        assert sorted(fsynced) == names
        fsynced.clear()
    assert all(file.pread(300, 0) == b"x" * 300 for file in files)


def test_closed_files_are_left_out(disk: OsDisk, tmp_path: pathlib.Path, fsynced: list[str]) -> None:
    made = some_files(disk, tmp_path, 5)
    for number in (0, 3):
        made[number].close()
    disk.fsync_files(made)
    assert sorted(fsynced) == ["1", "2", "4"]
    fsynced.clear()
    made[2].close()
    disk.fsync_files(made)
    assert sorted(fsynced) == ["1", "4"]
    fsynced.clear()
    for file in made:
        file.close()
    disk.fsync_files(made)
    assert fsynced == []


def test_a_file_that_vanished_is_an_error(disk: OsDisk, tmp_path: pathlib.Path) -> None:
    """Its descriptor was closed to make room, and then the file was deleted: its owner had not closed it."""
    files = some_files(disk, tmp_path, 60)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError):
        disk.fsync_files(files)


def test_the_one_that_failed_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 4)

    def fails(context: disk_sync.Context, descriptors: Sequence[int], *, folders: bool = False) -> list[int]:
        return [0, errno.EIO, 0, 0]

    monkeypatch.setattr(disk_sync.Context, "fsync", fails)
    with pytest.raises(OSError) as error:
        disk.fsync_files(files)
    assert (error.value.errno, error.value.filename) == (errno.EIO, f"{tmp_path}/1")


def test_what_the_kernel_does_not_take_is_fsynced_otherwise(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)
    otherwise: list[str] = []
    monkeypatch.setattr(disk_sync.Context, "fsync", lambda context, descriptors, *, folders=False: [0, -1, -1])
    monkeypatch.setattr(type(files[0]), "fsync", lambda file: otherwise.append(file.path))
    disk.fsync_files(files)
    assert otherwise == [f"{tmp_path}/1", f"{tmp_path}/2"]


def test_no_more_contexts_is_no_failure(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fsynced: list[str]
) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)

    def none_left(*arguments: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "aio-max-nr")

    with monkeypatch.context() as patch:
        patch.setattr(disk_sync.Context, "_call", none_left)
        disk.fsync_files(files)
    assert sorted(fsynced) == ["0", "1", "2"]
    fsynced.clear()
    disk.fsync_files(files)
    assert sorted(fsynced) == ["0", "1", "2"]


def test_threads_do_not_share_results(tmp_path: pathlib.Path) -> None:
    disk = OsDisk(max_open_files=50)
    files = some_files(disk, tmp_path, 40)
    errors: list[BaseException] = []

    def work(part: list[File]) -> None:
        try:
            for _ in range(10):
                for file in part:
                    file.pwritev([b"y"], 0)
                disk.fsync_files(part)
        except BaseException as error:  # noqa: BLE001  # shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=work, args=(files[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.skipif(disk_sync._numbers is None, reason="Linux has it, on common processors")
def test_the_kernel_fsyncs_together_here(tmp_path: pathlib.Path) -> None:
    descriptors = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(3)]
    try:
        context = disk_sync.Context()
    except disk_sync.Unavailable:
        pytest.skip("a sandbox forbids it")
    assert context.fsync(descriptors) == [0, 0, 0]
    assert context.fsync([descriptors[0], 10_000]) in ([0, -1], [0, errno.EBADF])
    for descriptor in descriptors:
        os.close(descriptor)


def background(disk: OsDisk) -> Fsyncs:
    fsyncs = disk.fsyncs()
    if fsyncs is None:
        pytest.skip("no asynchronous I/O here")
    return fsyncs


def wait_for(fsyncs: Fsyncs) -> list[File]:
    """Wait as a loop that watches the descriptor. Return the files that were not tried."""
    while True:
        readable, _, _ = select.select([fsyncs.fileno()], [], [], 30)
        assert readable
        left = fsyncs.ended()
        if left is not None:
            return list(left)


def is_readable(fsyncs: Fsyncs) -> bool:
    return bool(select.select([fsyncs.fileno()], [], [], 0)[0])


@pytest.mark.parametrize("count", [1, 2, disk_sync.MAX_FILES])
def test_nobody_has_to_wait_for_an_fsync(tmp_path: pathlib.Path, count: int) -> None:
    disk = OsDisk(max_open_files=20)
    files = some_files(disk, tmp_path, count)
    fsyncs = background(disk)
    for _ in range(3):
        assert fsyncs.begin(files)
        assert wait_for(fsyncs) == []
        assert fsyncs.ended() is None
        assert not is_readable(fsyncs)
    fsyncs.close()


def test_closed_files_are_left_out_of_a_batch(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)
    fsyncs = background(disk)
    files[1].close()
    assert fsyncs.begin(files)
    # The kernel keeps the file, even if its descriptor is closed.
    files[0].close()
    assert wait_for(fsyncs) == []
    files[2].close()
    assert not fsyncs.begin(files)


def test_what_a_batch_cannot_be_is_for_who_waits(tmp_path: pathlib.Path) -> None:
    """Too many files, or a file that vanished, which then is an error."""
    disk = OsDisk()
    files = some_files(disk, tmp_path, disk_sync.MAX_FILES + 1)
    fsyncs = background(disk)
    assert not fsyncs.begin(files)
    small = OsDisk(max_open_files=20)
    vanishing = some_files(small, tmp_path, 60)
    for path in tmp_path.iterdir():
        path.unlink()
    assert not background(small).begin(vanishing)
    with pytest.raises(FileNotFoundError):
        small.fsync_files(vanishing)


@pytest.mark.parametrize("results", [[0, errno.EIO, 0], [-1, errno.EIO, -1]])
def test_the_one_of_a_batch_that_failed_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, results: list[int]
) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)
    fsyncs = background(disk)
    assert fsyncs.begin(files)
    monkeypatch.setattr(disk_sync.Context, "collect", lambda context, *, wait: results)
    with pytest.raises(OSError) as error:
        wait_for(fsyncs)
    assert (error.value.errno, error.value.filename) == (errno.EIO, f"{tmp_path}/1")


def test_what_the_kernel_does_not_take_of_a_batch_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)
    fsyncs = background(disk)
    assert fsyncs.begin(files)
    monkeypatch.setattr(disk_sync.Context, "collect", lambda context, *, wait: [0, -1, -1])
    assert wait_for(fsyncs) == files[1:]


def test_a_batch_that_the_kernel_takes_none_of_was_not_begun(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    files = some_files(disk, tmp_path, 3)
    fsyncs = background(disk)

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EINVAL, "not for this file system")

    with monkeypatch.context() as patch:
        patch.setattr(disk_sync.Context, "_call", refuse)
        assert not fsyncs.begin(files)
    assert fsyncs.begin(files)
    assert wait_for(fsyncs) == []


def test_contexts_are_used_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes tens of milliseconds to destroy a context, and has 65,536 requests for all processes."""
    disk = OsDisk()
    background(disk).close()
    made: list[object] = []
    monkeypatch.setattr(disk_sync.Context, "__init__", lambda context: made.append(context))

    def none_left(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "no descriptor")

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", none_left)
        assert disk.fsyncs() is None
    fsyncs = background(disk)
    assert fsyncs.begin(some_files(disk, tmp_path, 1))
    # A context is not reused while the kernel still uses it.
    fsyncs.close()
    assert not made
    assert disk.fsyncs() is not None
    assert len(made) == 1
