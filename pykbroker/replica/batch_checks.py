"""Checks of batches, and searches in batches, that would take too long for one turn of the loop. They run off the loop,
one after the other.

A batch of 700 bytes can hold a million records; a normal batch of one megabyte has some megabytes of records when it is
decompressed. If the walk over the records is compiled, it lets other threads run, so a thread does the work. The walk
in Python would slow down the loop for seconds, so a worker process does the work instead.

Responsible for the order of the checks and for running one at a time, because a check may take three times 128 MiB of
memory. The connections bound the number of checks that wait: each waits for one check (dispatch/append_order.py). A
search that waits holds no bytes. Not responsible for the verdicts (`pykbroker_log.validate`, `time_search`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pykbroker.runtime import Runtime
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.time_search import BatchSearch, FoundRecord
from pykbroker_log.validate import CheckedBatch, check_elsewhere
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.walk import COMPILED

T = TypeVar("T")


class _Waiting(NamedTuple):
    begin: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    """Returns the function and the arguments of the check or search. It is called only when the turn comes, so a search
    that waits does not hold the batch that it reads."""
    future: asyncio.Future[Any]


class BatchChecks:
    """The checks of one broker. `in_process`: a thread of this process does them; if False, a worker process does."""

    def __init__(self, runtime: Runtime, *, in_process: bool = COMPILED) -> None:
        self._runtime = runtime
        self._in_process = in_process
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False
        #: the Produce request whose append at once has just failed with TooMuchAtOnce; it checks its batch here without
        #: a second try
        self.met_by: object | None = None

    def check(self, records: Buffer, config: LogConfig, now_ms: int) -> asyncio.Future[CheckedBatch | KafkaError]:
        """Check a client's batch, which must not change until the future is done. The result is the checked batch, or
        the error with which the batch is refused."""
        return self._add(lambda: (check_elsewhere, (records if self._in_process else bytes(records), config, now_ms)))

    def search(self, read: Callable[[], BatchSearch]) -> asyncio.Future[FoundRecord | None]:
        """Search a batch for a timestamp. `read` reads the batch when the turn of the search comes. The future fails
        with an error that `read` raises."""
        return self._add(lambda: (BatchSearch.run, (read(),)))

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Call a function of a module, whose arguments and result pickle. The future fails with an error that it
        raises."""
        return self._add(lambda: (function, arguments))

    def _add(self, begin: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._runtime.loop.create_future()
        self._waiting.append(_Waiting(begin, future))
        self._start()
        return future

    def _start(self) -> None:
        while self._waiting and not self._is_busy:
            begin, future = self._waiting.popleft()
            if future.done():
                continue  # its client has left
            try:
                function, arguments = begin()
            except Exception as error:  # noqa: BLE001  # the waiting caller gets it
                future.set_exception(error)
                continue
            self._is_busy = True
            job: asyncio.Future[Any]
            if self._in_process:
                job = self._runtime.run_blocking(function, *arguments)
            else:
                job = self._runtime.run_apart(_job, function, arguments)
            job.add_done_callback(partial(self._ended, future))

    def _ended(self, future: asyncio.Future[Any], job: asyncio.Future[Any]) -> None:
        self._is_busy = False
        if job.cancelled():
            self._stop(future)
            return
        error = job.exception()
        if not future.done():
            if error is None:
                future.set_result(job.result())
            else:
                future.set_exception(error)
        self._start()

    def _stop(self, future: asyncio.Future[Any]) -> None:
        """Cancel this check and all that wait, because the node is stopping."""
        future.cancel()
        while self._waiting:
            self._waiting.popleft().future.cancel()


def _job(_disk: Disk, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Generator[int, None, Any]:
    """Run a check as a job of a worker process."""
    yield 1
    return function(*arguments)
