"""Brings into memory what the loop must not wait for: on threads, so many at once, in turns.

Responsible for the order and the number of loads under way. Not responsible for finding out what is cold (`ColdRead`,
`Region.is_resident`), nor for reading it afterwards: whoever waits reads again, and has to get on even if memory is so
short that it is gone again by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pykbroker_log.disk import ColdRead

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime
    from pykbroker_log.disk import Disk

T = TypeVar("T")

#: Of a larger load only this much is read before the others get their turn.
TURN_BYTES = 1 << 20
#: How often a read is begun again before it may wait for the device: every time it has got further, unless memory is so
#: short that what was loaded is gone again.
MAX_ROUNDS = 64


class Loadable(Protocol):
    """`File` and `Region`."""

    def load(self, offset: int, length: int, /) -> None: ...


class ColdReads:
    """Of one node. `at_once` (pykbroker.max.cold.reads): loads on threads; the others wait in the order of their
    turns."""

    def __init__(self, runtime: Runtime, at_once: int = 4) -> None:
        self._runtime = runtime
        self._at_once = at_once
        self._under_way = 0
        self._waiting: deque[tuple[Loadable, int, int, asyncio.Future[None]]] = deque()

    def load(self, source: Loadable, offset: int, length: int) -> asyncio.Future[None]:
        """Done when the bytes were in memory; OSError when they cannot be read. May be cancelled."""
        future: asyncio.Future[None] = self._runtime.loop.create_future()
        self._waiting.append((source, offset, length, future))
        self._start()
        return future

    def _start(self) -> None:
        while self._waiting and self._under_way < self._at_once:
            source, offset, length, future = self._waiting.popleft()
            if future.done():
                continue
            self._under_way += 1
            turn = min(length, TURN_BYTES)
            job = self._runtime.run_blocking(source.load, offset, turn)
            job.add_done_callback(partial(self._loaded, source, offset + turn, length - turn, future))

    def _loaded(
        self, source: Loadable, offset: int, left: int, future: asyncio.Future[None], done: asyncio.Future[None]
    ) -> None:
        self._under_way -= 1
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if not future.done():
            if isinstance(error, asyncio.CancelledError):
                future.cancel()  # the node is stopping
            elif error is not None:
                future.set_exception(error)
            elif left > 0:
                self._waiting.append((source, offset, left, future))
            else:
                future.set_result(None)
        self._start()

    def when_warm(self, disk: Disk, operation: Callable[[], T]) -> T | asyncio.Future[T]:
        """What `operation` returns, at once if everything that it reads is in memory. It is begun again from the start
        after every load, so it changes nothing before it has read everything."""
        try:
            with disk.without_waiting():
                return operation()
        except ColdRead as cold:
            retry = _Retry(self, disk, operation)
            retry.after(cold)
            return retry.future


class _Retry(Generic[T]):
    """One operation of `when_warm` that found something cold."""

    def __init__(self, cold_reads: ColdReads, disk: Disk, operation: Callable[[], T]) -> None:
        self._cold_reads = cold_reads
        self._disk = disk
        self._operation = operation
        self._rounds = 0
        self.future: asyncio.Future[T] = cold_reads._runtime.loop.create_future()

    def after(self, cold: ColdRead) -> None:
        self._cold_reads.load(cold.file, cold.offset, cold.length).add_done_callback(self._again)

    def _again(self, loaded: asyncio.Future[None]) -> None:
        if self.future.done():
            return
        if loaded.cancelled():
            self.future.cancel()
            return
        # What could not be read is met again by the operation, whose business it is.
        failed = loaded.exception() is not None
        self._rounds += 1
        try:
            if failed or self._rounds > MAX_ROUNDS:
                self.future.set_result(self._operation())
            else:
                with self._disk.without_waiting():
                    self.future.set_result(self._operation())
        except ColdRead as cold:
            self.after(cold)
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            self.future.set_exception(error)
