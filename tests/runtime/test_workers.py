"""Worker processes: what a job gives back, what becomes of it when it fails, is cancelled, or loses a side."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import psutil
import pytest

from pykbroker.runtime import OsRuntime, workers
from pykbroker.runtime.workers import WorkerDied
from pykbroker_log.disk import Disk, read_file, write_new

pytestmark = pytest.mark.slow


def copy(disk: Disk, source: str, target: str) -> Generator[int, None, int]:
    data = read_file(disk, source)
    write_new(disk, target, data)
    yield len(data) - 1
    yield 1
    print("what a job prints does not get between the answers")
    return len(data)


def fail(disk: Disk) -> Generator[int, None, None]:
    yield 1
    raise ValueError("as it was meant to")


def say_who(disk: Disk) -> Generator[int, None, int]:
    yield 0
    return os.getpid()


def hang(disk: Disk) -> Generator[int, None, None]:
    while True:
        yield os.getpid()
        signal.pause()


def look(disk: Disk, path: str) -> Generator[int, None, int]:
    """Map the file, and look at it once it has been cut off."""
    file = disk.open(path)
    view = memoryview(file.reader().pread(file.size(), 0))
    yield view[-1]
    while file.size():
        time.sleep(0.01)
    return view[-1]


@pytest.fixture
def runtime() -> Iterator[OsRuntime]:
    # The tests of another module may have a process of their own.
    others = psutil.Process().children()
    loop = asyncio.new_event_loop()
    runtime = OsRuntime(loop)
    yield runtime
    runtime.close()
    loop.close()
    assert psutil.Process().children() == others, "no worker is left"


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for happens in another process
        await asyncio.sleep(0.01)


def test_results_and_progress(runtime: OsRuntime, tmp_path: object) -> None:
    source, target = f"{tmp_path}/a", f"{tmp_path}/b"
    write_new(runtime.disk, source, b"x" * 1000)
    seen: list[int] = []

    async def run() -> int:
        return await runtime.run_apart(copy, source, target, on_progress=seen.append)

    assert runtime.loop.run_until_complete(run()) == 1000
    assert seen == [999, 1]
    assert read_file(runtime.disk, target) == b"x" * 1000


def test_what_a_job_raises_is_raised(runtime: OsRuntime) -> None:
    async def run() -> None:
        first = await runtime.run_apart(say_who)
        with pytest.raises(ValueError, match="as it was meant to"):
            await runtime.run_apart(fail)
        with pytest.raises(FileNotFoundError):
            await runtime.run_apart(copy, "/nowhere/a", "/nowhere/b")
        assert await runtime.run_apart(say_who) == first, "the worker was not lost with the job"

    runtime.loop.run_until_complete(run())


def test_a_worker_that_dies_fails_its_job_only(runtime: OsRuntime) -> None:
    async def run() -> None:
        pids: list[int] = []
        job = runtime.run_apart(hang, on_progress=pids.append)
        await until(lambda: pids)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDied):
            await job
        assert await runtime.run_apart(say_who) != pids[0]

    runtime.loop.run_until_complete(run())


def test_g_a_worker_that_dies_of_sigbus_is_an_error_of_the_disk(runtime: OsRuntime, tmp_path: Path) -> None:
    """Its death says that the disk failed, and which file it was; the next job gets another worker."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))

    async def run() -> None:
        with pytest.raises(OSError, match="became shorter") as raised:
            await runtime.run_apart(look, str(path), on_progress=lambda last: os.truncate(path, 0))
        assert (raised.value.errno, raised.value.filename) == (errno.EIO, str(path))
        assert "SIGBUS" in str(raised.value)
        assert await runtime.run_apart(say_who) > 0

    runtime.loop.run_until_complete(run())


def test_cancelling_kills(runtime: OsRuntime) -> None:
    async def run() -> None:
        pids: list[int] = []
        jobs = [runtime.run_apart(hang, on_progress=pids.append) for _ in range(2)]
        await until(lambda: len(pids) == 2)
        for job in jobs:
            job.cancel()
        await until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        assert await runtime.run_apart(say_who) not in pids

    runtime.loop.run_until_complete(run())


def test_closing_ends_what_runs(runtime: OsRuntime) -> None:
    async def run() -> None:
        pids: list[int] = []
        runtime.run_apart(hang, on_progress=pids.append).add_done_callback(lambda done: done.exception())
        await until(lambda: pids)

    runtime.loop.run_until_complete(run())


PARENT = """
import asyncio, sys
sys.path[:] = sys.argv[1:]
from pykbroker.runtime import OsRuntime
from tests.runtime.test_workers import hang
loop = asyncio.new_event_loop()
runtime = OsRuntime(loop)
runtime.run_apart(hang, on_progress=lambda pid: print(pid, flush=True))
loop.run_forever()
"""


def test_workers_do_not_outlive_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, *sys.path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        worker.wait(timeout=30)


def test_a_worker_whose_parent_is_gone_says_nothing() -> None:
    """It had its answer ready when the parent was killed, and left a traceback in the parent's log."""
    worker = subprocess.Popen(
        [sys.executable, "-c", workers._START, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stderr is not None
    worker.stdout.close()
    workers._send(worker.stdin, pickle.dumps((say_who, (), None)))
    assert worker.stderr.read() == b""
    assert worker.wait(30) == 0
    worker.stdin.close()
    worker.stderr.close()
