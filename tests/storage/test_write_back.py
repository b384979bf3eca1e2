"""Parts of a log that are sent to the device, and that a real kernel accepts the request."""

from __future__ import annotations

import ctypes
import os
import pathlib

import pytest

from pykbroker.storage.write_back import Stretch, unwritten, write_back
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import append, open_log


def due(log: PartitionLog, least: int) -> list[tuple[int, int]]:
    return [(position, size) for _, position, size in unwritten(log.files.segments, least)]


def test_only_what_is_new_and_enough_of_it() -> None:
    log = open_log(MemoryDisk())
    assert due(log, 1) == []
    append(log, b"x" * 1000)
    first = log.size_bytes
    assert due(log, first + 1) == []
    assert due(log, first) == [(0, first)]
    assert due(log, 1) == []
    append(log, b"y" * 10)
    assert due(log, 1) == [(first, log.size_bytes - first)]


def test_the_rest_of_segments_that_ended_meanwhile() -> None:
    log = open_log(config=LogConfig(segment_bytes=500))
    for _ in range(6):
        append(log, b"x" * 300)
    assert len(log.files.segments) == 6
    size = log.size_bytes // 6
    assert due(log, size + 1) == [(0, size)] * 5, "the active one has not enough"
    assert due(log, 1) == [(0, size)]
    assert due(log, 1) == []


def test_a_log_that_was_there_before_owes_nothing_and_one_that_was_cut_goes_on_from_there() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for value in (b"a" * 100, b"b" * 100):
        append(log, value)
    size = log.size_bytes // 2
    log.close(clean=True)
    log = open_log(disk)
    assert due(log, 1) == []
    log.truncate_to(1)
    append(log, b"c" * 100)
    assert due(log, 1) == [(size, size)]


def dirty_pages(path: pathlib.Path) -> int:
    """Count with cachestat(2) the pages that are dirty or being written."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = (ctypes.c_uint64 * 5)()
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syscall(451, fd, (ctypes.c_uint64 * 2)(0, 0), found, 0):
            pytest.skip(f"this kernel has no cachestat: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)
    return found[1]


def test_the_kernel_begins_at_once(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.log"
    file = OsDisk().open(str(path), create=True)
    file.pwritev([bytes(1 << 20)], 0)
    before = dirty_pages(path)
    if not before:
        pytest.skip("this file system keeps nothing dirty")
    write_back([Stretch(file, 0, 1 << 20)])
    assert dirty_pages(path) == 0
    file.close()
    write_back([Stretch(file, 0, 1 << 20)])  # deleted in the meantime
