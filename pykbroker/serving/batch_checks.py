"""Checks of batches that take longer than a turn of the loop may: off the loop, one after the other.

A batch of 700 bytes can hold a million records, and one of a megabyte holds some megabytes of honest ones as a rule.
The compiled walk lets other threads run while it works, so a thread does it. The walk in Python would take turns with
the loop for seconds, so a worker process does it then.

Responsible for the order of the checks and for their number: one at a time, because one may take three times 128 MiB of
memory. Those that wait are bounded by the connections, each of which waits for one (serving/append_order.py). Not
responsible for the verdicts (`pykbroker_log.validate`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from functools import partial
from typing import NamedTuple

from pykbroker.runtime import Runtime
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import LogConfig
from pykbroker_log.validate import Checked, check_elsewhere
from pykbroker_wire.errors import KafkaError
from pykbroker_wire.primitives import Buffer
from pykbroker_wire.records.walk import COMPILED


class _Waiting(NamedTuple):
    records: Buffer
    config: LogConfig
    now_ms: int
    future: asyncio.Future[Checked | KafkaError]


class BatchChecks:
    """The checks of one broker. `in_process`: a thread of this process does them, and else a worker process."""

    def __init__(self, runtime: Runtime, *, in_process: bool = COMPILED) -> None:
        self._runtime = runtime
        self._in_process = in_process
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False

    def check(self, records: Buffer, config: LogConfig, now_ms: int) -> asyncio.Future[Checked | KafkaError]:
        """Check a client's batch, which no one may change until the future is done. Its result is the checked batch, or
        the error that the batch is refused with."""
        future: asyncio.Future[Checked | KafkaError] = self._runtime.loop.create_future()
        self._waiting.append(_Waiting(records, config, now_ms, future))
        self._start()
        return future

    def _start(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        records, config, now_ms, future = self._waiting.popleft()
        job: asyncio.Future[Checked | KafkaError]
        if self._in_process:
            job = self._runtime.run_blocking(check_elsewhere, records, config, now_ms)
        else:
            job = self._runtime.run_apart(_job, bytes(records), config, now_ms)
        job.add_done_callback(partial(self._ended, future))

    def _ended(self, future: asyncio.Future[Checked | KafkaError], job: asyncio.Future[Checked | KafkaError]) -> None:
        self._is_busy = False
        if job.cancelled():
            self._stop(future)
            return
        error = job.exception()
        if error is None:
            future.set_result(job.result())
        else:
            future.set_exception(error)
        self._start()

    def _stop(self, future: asyncio.Future[Checked | KafkaError]) -> None:
        """The node is stopping: nothing is waited for any more."""
        future.cancel()
        while self._waiting:
            self._waiting.popleft().future.cancel()


def _job(_disk: Disk, records: bytes, config: LogConfig, now_ms: int) -> Generator[int, None, Checked | KafkaError]:
    """For a worker process."""
    yield len(records)
    return check_elsewhere(records, config, now_ms)
