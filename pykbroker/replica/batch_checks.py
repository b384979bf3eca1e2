"""Checks of batches, and searches in them, that take longer than a turn of the loop may: off the loop, one after the
other.

A batch of 700 bytes can hold a million records, and one of a megabyte holds some megabytes of honest ones as a rule.
The compiled walk lets other threads run while it works, so a thread does it. The walk in Python would take turns with
the loop for seconds, so a worker process does it then.

Responsible for the order of the checks and for their number: one at a time, because one may take three times 128 MiB of
memory. Checks that wait are bounded by the connections, each of which waits for one (dispatch/append_order.py); a
search that waits holds no bytes. Not responsible for the verdicts (`pykbroker_log.validate`, `time_search`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

from pykbroker.runtime import Runtime
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.time_search import BatchSearch, FoundRecord
from pykbroker_log.validate import CheckedBatch, check_elsewhere
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.walk import COMPILED


class _Waiting(NamedTuple):
    begin: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    """The call that does it, made when its turn comes: what waits holds no batch that was read for it."""
    future: asyncio.Future[Any]


class BatchChecks:
    """The checks of one broker. `in_process`: a thread of this process does them, and else a worker process."""

    def __init__(self, runtime: Runtime, *, in_process: bool = COMPILED) -> None:
        self._runtime = runtime
        self._in_process = in_process
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False
        #: the request whose only batch has just proved to take longer than a turn
        self.met_by: object | None = None

    def check(self, records: Buffer, config: LogConfig, now_ms: int) -> asyncio.Future[CheckedBatch | KafkaError]:
        """Check a client's batch, which no one may change until the future is done. Its result is the checked batch, or
        the error that the batch is refused with."""
        return self._add(lambda: (check_elsewhere, (records if self._in_process else bytes(records), config, now_ms)))

    def search(self, read: Callable[[], BatchSearch]) -> asyncio.Future[FoundRecord | None]:
        """Look for a timestamp in a batch that is read when it has its turn. Fails with what `read` raises."""
        return self._add(lambda: (BatchSearch.run, (read(),)))

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
