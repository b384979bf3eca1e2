"""Worker processes for loops over records, which would block the event loop for too long.

Responsible for starting workers, passing jobs to them, and reporting progress. It ends a worker when the worker is
idle, when its job is cancelled, or when this process ends. Not responsible for the work of a job.

A job is a generator function at the top of a module. It is called as `job(disk, *args)` with the worker's own disk. It
yields the number of bytes that it has processed since the last yield (or parts of its result, which do not count), and
returns its result. Arguments and results are pickled, so they are plain values, such as names of files and ranges. A
worker may be killed at any moment, so a job must leave usable files at every step.

A worker scans files through memory maps. If a file is cut off or its device cannot read, the access to the map causes a
SIGBUS, and the worker dies. Its job then fails with the OSError (EIO) that a read would have raised in the broker.

Invariants:
* A worker ends at the latest when the pipe from its parent breaks, so no worker writes to a directory whose owner has
  ended.
* A worker is not a fork, which locks, threads and event loops do not survive. It does not import the parent's
  `__main__`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, TypeAlias, TypeVar

from pykbroker_log.disk import Disk
from pykbroker_log.os_disk.disk import OsDisk

T = TypeVar("T")
Job: TypeAlias = Callable[..., Generator[Any, None, T]]

_LENGTH = struct.Struct(">I")
_IDLE_SECONDS = 10.0
#: The most open files of a worker, which needs only few files at a time.
_MAX_OPEN_FILES = 64
#: The nice value of workers; the broker, which serves clients, has priority.
_NICE = 5
_START = "import sys; sys.path[:] = sys.argv[1:]; from pykbroker.runtime.workers import main; main()"


#: The text of the error after a SIGBUS.
CUT_OFF = "the file became shorter while a worker process read it through a map, or its device failed (SIGBUS)"


class WorkerDied(Exception):
    """The worker was killed, or could not be started."""


def finish(job: Job[T], disk: Disk, *args: object, on_progress: Callable[[Any], None] | None = None) -> T:
    """Run a job in this process and thread, and return its result."""
    steps = job(disk, *args)
    while True:
        try:
            done = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if on_progress is not None:
            on_progress(done)


# -- in the parent ----------------------------------------------------------------------------------------------------


class Workers:
    """At most `size` worker processes, which are started when there are jobs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int) -> None:
        self._loop = loop
        # Each thread only waits for its worker.
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="pykbroker-worker")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def run(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        """Queue a job. `on_progress` is called on the loop with each value that the job yields. Cancelling the future
        kills the worker. The future fails with the error of the job, with OSError if a map failed, or with
        WorkerDied."""
        future: asyncio.Future[T] = self._loop.create_future()
        request = pickle.dumps((job, args, bytes_per_second))

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = self._work(request, future, on_progress)
            except Exception as error:  # noqa: BLE001  # whatever the job raised is the future's
                self._tell(_settle, future, None, error)
            else:
                self._tell(_settle, future, result, None)

        self._threads.submit(work)
        return future

    def _work(self, request: bytes, future: asyncio.Future[T], on_progress: Callable[[Any], None] | None) -> object:
        worker = self._take()
        self._tell(future.add_done_callback, lambda done: worker.kill() if done.cancelled() else None)
        try:
            for value in worker.ask(request):
                if on_progress is not None:
                    self._tell(on_progress, value)
            kind, result = worker.answer
        except (OSError, EOFError) as error:
            if worker.ended_by() == signal.SIGBUS:
                raise OSError(errno.EIO, CUT_OFF, worker.mapped) from error
            raise WorkerDied(f"a worker process ended: {error!r}") from error
        finally:
            self._give_back(worker)
        if kind == "error":
            raise result
        return result

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the loop is closed, so no caller waits

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise WorkerDied("the workers have been closed")
            try:
                worker = self._idle.pop() if self._idle else _Worker()
            except OSError as error:
                raise WorkerDied(f"a worker process cannot be started: {error}") from error
            self._busy.add(worker)
            return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._busy.discard(worker)
            if worker.usable and not self._closed:
                self._idle.append(worker)
                self._tell(self._arm)
                return
        worker.close()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            self._timer = self._loop.call_later(_IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def close(self) -> None:
        """Kill all workers; the work of their jobs is lost. Blocks until they have ended."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            for worker in self._busy:
                worker.kill()
        self._end_idle()
        self._threads.shutdown(wait=True, cancel_futures=True)


def _settle(future: asyncio.Future[object], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class _Worker:
    """One worker process and its pipes. It runs one job at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # this program itself
            [sys.executable, "-c", _START, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answer: tuple[str, Any] = ("", None)
        #: the file that the worker has mapped last
        self.mapped = ""
        #: True while the worker can take a job
        self.usable = True

    def ask(self, request: bytes) -> Iterator[Any]:
        """Pass a job to the worker, and yield its progress. After the last value, `answer` has the result. Raises
        OSError or EOFError if the process has died."""
        stdin, stdout = self._pipes()
        self.usable = False
        _send(stdin, request)
        while True:
            kind, value = pickle.loads(_receive(stdout))  # noqa: S301  # from its own worker process
            if kind == "maps":
                self.mapped = value
            elif kind == "progress":
                yield value
            else:
                break
        self.answer = kind, value
        self.usable = True

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def ended_by(self) -> int:
        """Return the signal that ended the process, or 0 or less if no signal did. Call it only after the pipe has
        broken."""
        return -self._process.wait()

    def kill(self) -> None:
        """Kill the process, from any thread. A thread that waits for its answer then gets an error."""
        self.usable = False
        self._process.kill()

    def close(self) -> None:
        stdin, stdout = self._pipes()
        self._process.kill()
        self._process.wait()
        try:
            stdin.close()
        except BrokenPipeError:
            pass  # it was killed before it read its job
        stdout.close()


# -- both ends --------------------------------------------------------------------------------------------------------


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError("the pipe was closed")
    (length,) = _LENGTH.unpack(header)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError("the pipe was closed")
    return data


# -- in the worker ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Serve jobs until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent, whose end breaks the pipe
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    # Answers get a descriptor of their own, because a job's prints to stdout must not get between them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                requests.put(_receive(sys.stdin.buffer))
        except (EOFError, OSError):
            # End even in the middle of a job, because its directory may already belong to another process.
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    disk = OsDisk(max_open_files=_MAX_OPEN_FILES, on_map=lambda path: _tell(answers, pickle.dumps(("maps", path))))
    while True:
        job, args, bytes_per_second = pickle.loads(requests.get())  # noqa: S301  # from its own worker process
        throttle = _Throttle(bytes_per_second)

        def progress(done: object, throttle: _Throttle = throttle) -> None:
            if isinstance(done, int):
                throttle.spend(done)
            _send(answers, pickle.dumps(("progress", done)))

        try:
            answer = "result", finish(job, disk, *args, on_progress=progress)
        except Exception as error:  # noqa: BLE001  # the parent gets it
            answer = "error", error
        try:
            message = pickle.dumps(answer)
        except (pickle.PicklingError, TypeError, AttributeError):
            message = pickle.dumps(("error", RuntimeError(repr(answer[1]))))
        _tell(answers, message)


def _tell(parent: IO[bytes], message: bytes) -> None:
    try:
        _send(parent, message)
    except BrokenPipeError:
        # The parent was killed, so no caller waits for the answer, and this is not an error.
        os._exit(0)


class _Throttle:
    """Limits the average number of bytes per second since the job's start."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._start = time.monotonic()
        self._spent = 0

    def spend(self, count: int) -> None:
        if self._rate is None or self._rate == float("inf"):
            return
        self._spent += count
        ahead = self._spent / self._rate - (time.monotonic() - self._start)
        if ahead > 0:
            time.sleep(ahead)
