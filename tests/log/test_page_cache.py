"""Reads of real files that were removed from memory, and what the kernel reports about them."""

from __future__ import annotations

import errno
import mmap
import os
import pathlib
import sys

import pytest

from pykbroker_log.disk import ColdRead
from pykbroker_log.os_disk import page_cache
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsFile
from pykbroker_log.os_disk.page_cache import IsResident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
SIZE = 1 << 20


def evict(path: pathlib.Path) -> None:
    """Remove a file from memory. The kernel keeps a page that something else uses at that moment, so this tries
    again."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        pages = range(0, os.fstat(fd).st_size, mmap.PAGESIZE)
        for _ in range(1_000):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not any(page_cache.by_mincore(fd, page, 1) for page in pages):
                return
    finally:
        os.close(fd)
    pytest.skip("this file system keeps its files in memory")


@pytest.fixture
def cold(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file that is not in memory."""
    path = tmp_path / "cold"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    evict(path)
    return path


def works(probe: IsResident, path: pathlib.Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        probe(fd, 0, 1)
    except OSError:
        return False  # a kernel before 6.5, or a sandbox
    finally:
        os.close(fd)
    return True


@pytest.mark.parametrize("probe", page_cache.probes(), ids=lambda probe: probe.__name__)
def test_probes(probe: IsResident, cold: pathlib.Path) -> None:
    if not works(probe, cold):
        pytest.skip("not on this kernel")
    fd = os.open(cold, os.O_RDWR)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # read only the requested bytes
    assert not probe(fd, 0, SIZE)
    os.pread(fd, 300_000, 100_000)
    assert probe(fd, 100_000, 300_000)
    assert probe(fd, 350_001, 17)
    assert not probe(fd, 0, SIZE)
    assert not probe(fd, 50_000, 100_000)
    assert not probe(fd, 390_000, 100_000)
    os.close(fd)


def in_a_hurry(disk: OsDisk, file: OsFile, size: int, offset: int) -> bytes:
    with disk.without_waiting():
        return file.pread(size, offset)


@pytest.mark.parametrize("size", [1, 8_192, 60_000, 65_537, 500_000])
def test_a_hurried_read_raises_and_a_loaded_one_does_not(cold: pathlib.Path, size: int) -> None:
    disk = OsDisk()
    file = disk.open(str(cold))
    expected = (bytes(range(256)) * (SIZE // 256))[100_000 : 100_000 + size]
    try:
        found = in_a_hurry(disk, file, size, 100_000)
    except ColdRead as cold_read:
        cold_read.source.load(cold_read.offset, cold_read.length)
    else:
        # A try makes the kernel read ahead, and a fast device may be done before the next check.
        assert found == expected
        assert size <= 64 * 1024
    assert in_a_hurry(disk, file, size, 100_000) == expected
    evict(cold)
    assert file.pread(size, 100_000) == expected  # a caller that may wait waits
    file.close()


def test_a_hurried_read_is_short_only_at_the_end_of_the_file(cold: pathlib.Path) -> None:
    disk = OsDisk()
    file = disk.open(str(cold))
    file.load(0, SIZE)
    assert len(in_a_hurry(disk, file, 10_000, SIZE - 10)) == 10
    assert len(in_a_hurry(disk, file, SIZE, 10)) == SIZE - 10
    assert in_a_hurry(disk, file, 10, SIZE + 5) == b""


def test_regions_know_what_is_in_memory(cold: pathlib.Path) -> None:
    disk = OsDisk()
    region = disk.open(str(cold)).region(1_000, 900_000)
    assert region is not None
    assert not region.is_resident(0, 100_000)
    region.load(0, 100_000)
    assert region.is_resident(0, 100_000)
    assert disk.page_cache._probe is page_cache.probes()[0] or not works(page_cache.probes()[0], cold)


def test_where_only_sockets_are_sent_files_a_load_copies(cold: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: int) -> int:
        raise OSError(errno.EINVAL, "not to this")

    monkeypatch.setattr(os, "sendfile", refuses)
    region = OsDisk().open(str(cold)).region(1_000, SIZE - 1_000)
    assert region is not None
    region.load(0, SIZE - 1_000)
    assert region.is_resident(0, SIZE - 1_000)


def test_a_load_past_the_end_is_no_reason_to_doubt_the_probe(cold: pathlib.Path) -> None:
    disk = OsDisk()
    disk.open(str(cold)).load(SIZE - 10, 100)
    assert disk.page_cache._probe is page_cache.probes()[0]


def test_a_device_that_fails_ends_the_load(cold: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: int) -> bytes:
        raise OSError(errno.EIO, "the device")

    monkeypatch.setattr(os, "sendfile", fails)
    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(OSError, match="the device"):
        OsDisk().open(str(cold)).load(0, SIZE)


def test_a_probe_that_never_sees_what_was_read_is_given_up(cold: pathlib.Path) -> None:
    """Some file systems keep pages where cachestat does not find them."""
    disk = OsDisk()
    disk.page_cache._probes, disk.page_cache._probe = [page_cache.by_mincore], lambda fd, offset, length: False
    region = disk.open(str(cold)).region(0, SIZE)
    assert region is not None
    assert not region.is_resident(0, SIZE)
    region.load(0, SIZE)
    assert region.is_resident(0, SIZE)
    evict(cold)
    assert not region.is_resident(0, SIZE)


def test_a_probe_that_fails_is_replaced_and_without_any_everything_passes_for_resident(cold: pathlib.Path) -> None:
    def fails(fd: int, offset: int, length: int) -> bool:
        raise OSError(38, "not here")

    disk = OsDisk()
    disk.page_cache._probes, disk.page_cache._probe = [fails], fails
    region = disk.open(str(cold)).region(0, SIZE)
    assert region is not None
    assert region.is_resident(0, SIZE)
    assert disk.page_cache._probe is None
