"""Fsync off the loop, by the kernel or on a thread. The callback comes once, on the loop, with the outcome."""

from __future__ import annotations

import asyncio
import errno
import os
import pathlib
import threading
from collections.abc import Iterator

import pytest

from pykbroker.runtime import OsRuntime
from pykbroker_log.disk import File
from pykbroker_log.os_disk import disk_sync
from pykbroker_log.os_disk.disk import OsDisk


def event_descriptors() -> list[str]:
    """Return the descriptors that the loop watches for the kernel's fsyncs, none on another system."""
    folder = pathlib.Path("/proc/self/fd")
    links = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()] if folder.exists() else []
    return [link for link in links if "eventfd" in link]


@pytest.fixture(params=["kernel", "thread"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[OsRuntime]:
    if request.param == "thread":
        monkeypatch.setattr(disk_sync, "_numbers", None)
    before = event_descriptors()
    loop = asyncio.new_event_loop()
    runtime = OsRuntime(loop, OsDisk())
    yield runtime
    runtime.close()
    loop.close()
    assert event_descriptors() == before


@pytest.fixture
def files(runtime: OsRuntime, tmp_path: pathlib.Path) -> Iterator[list[File]]:
    files = [runtime.disk.open(f"{tmp_path}/{number}", create=True) for number in range(3)]
    for file in files:
        file.pwritev([b"x"], 0)
    yield files
    for file in files:
        file.close()


def fsync(runtime: OsRuntime, *batches: list[File]) -> list[BaseException | None]:
    """Begin all fsyncs at once. Return the outcome of each, in the order in which they were begun."""
    thread = threading.get_ident()

    async def run() -> list[BaseException | None]:
        told: list[asyncio.Future[BaseException | None]] = []

        def begin(batch: list[File]) -> None:
            future: asyncio.Future[BaseException | None] = runtime.loop.create_future()
            told.append(future)

            def ended(error: BaseException | None) -> None:
                assert threading.get_ident() == thread
                future.set_result(error)

            runtime.fsync(batch, ended)
            assert not future.done()

        for batch in batches:
            begin(batch)
        return list(await asyncio.gather(*told))

    return runtime.loop.run_until_complete(run())


def test_the_end_is_told_on_the_loop(runtime: OsRuntime, files: list[File]) -> None:
    for _ in range(3):
        assert fsync(runtime, files) == [None]
    assert fsync(runtime, files[:1], files[1:], files) == [None] * 3


def test_nothing_to_fsync_ends_as_well(runtime: OsRuntime, files: list[File]) -> None:
    assert fsync(runtime, []) == [None]
    files[0].close()
    assert fsync(runtime, files[:1]) == [None]


def test_a_failure_is_told_once_and_of_its_batch(
    runtime: OsRuntime, files: list[File], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(errno.EIO, "the device")]
    results = [errno.EIO]

    def fails(file: File) -> None:
        if failures:
            raise failures.pop()

    collect = disk_sync.Context.collect

    def fails_in_kernel(context: disk_sync.Context, *, wait: bool) -> list[int] | None:
        found = collect(context, wait=wait)
        return found if found is None or not results else [results.pop()] * len(found)

    monkeypatch.setattr(type(files[0]), "fsync", fails)
    monkeypatch.setattr(disk_sync.Context, "collect", fails_in_kernel)
    (error,) = fsync(runtime, files[:1])
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert fsync(runtime, files) == [None]


def test_what_the_kernel_leaves_a_thread_does(
    runtime: OsRuntime, files: list[File], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[File] = []
    expected = files if disk_sync._numbers is None else files[1:]
    collect = disk_sync.Context.collect

    def leaves_two(context: disk_sync.Context, *, wait: bool) -> list[int] | None:
        found = collect(context, wait=wait)
        return None if found is None else ([0, -1, -1] if len(found) == 3 else [-1] * len(found))

    monkeypatch.setattr(disk_sync.Context, "collect", leaves_two)
    monkeypatch.setattr(type(files[0]), "fsync", lambda file: done.append(file))
    assert fsync(runtime, files) == [None]
    assert done == expected


def test_ids_that_were_seen_tell_nothing_of_the_next_ones(runtime: OsRuntime) -> None:
    with pytest.raises(NotImplementedError):
        # A generator with a state goes on from 624 numbers in a way that can be computed.
        runtime.random.getstate()
