"""Loads data from a device into memory on threads, because the loop must not wait for it. The number of loads at once
is limited, and large loads take turns.

Responsible for the order and the number of running loads. Not responsible for detecting that data is not in memory
(`ColdRead`, `Region.is_resident`), nor for the read afterwards. The caller reads again, and must make progress even if
memory is so short that the data is already evicted again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pykbroker_log.disk import ColdRead, Loadable

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime

T = TypeVar("T")

#: The part of a larger load that is read before other loads get their turn.
TURN_BYTES = 1 << 20
#: The number of times that a read is repeated before it may wait for the device. Each repetition reads further, unless
#: memory is so short that the loaded data is evicted again.
MAX_ROUNDS = 64


class ColdReads:
    """The cold reads of one node. `at_once` (pykbroker.max.cold.reads): the most loads that run on threads at once; the
    other loads wait in a queue."""

    def __init__(self, runtime: Runtime, at_once: int = 4) -> None:
        self._runtime = runtime
        self._at_once = at_once
        self._under_way = 0
        self._waiting: deque[tuple[Loadable, int, int, asyncio.Future[None]]] = deque()

    def load(self, source: Loadable, offset: int, length: int) -> asyncio.Future[None]:
        """Return a future that is done when the bytes have been loaded into memory, or that fails with OSError. It may
        be cancelled."""
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
                future.cancel()  # the node stops
            elif error is not None:
                future.set_exception(error)
            elif left > 0:
                self._waiting.append((source, offset, left, future))
            else:
                future.set_result(None)
        self._start()

    def retry(self, cold: ColdRead, operation: Callable[[bool], T]) -> asyncio.Future[T]:
        """Return a future of the result of `operation(wait)`, which is called again after each load until it does not
        raise ColdRead. It starts from the beginning each time, so it must change nothing before it has read everything.
        With `wait` it must wait for the device instead of raising ColdRead."""
        retry = _Retry(self, operation, self._runtime.loop.create_future())
        retry.after(cold)
        return retry.future


class _Retry(Generic[T]):
    def __init__(self, cold_reads: ColdReads, operation: Callable[[bool], T], future: asyncio.Future[T]) -> None:
        self._cold_reads = cold_reads
        self._operation = operation
        self._rounds = 0
        self.future = future

    def after(self, cold: ColdRead) -> None:
        self._cold_reads.load(cold.source, cold.offset, cold.length).add_done_callback(self._again)

    def _again(self, loaded: asyncio.Future[None]) -> None:
        if self.future.done():
            return
        if loaded.cancelled():
            self.future.cancel()
            return
        self._rounds += 1
        # If the thread could not read, the operation cannot read either. It then raises the right error.
        wait = loaded.exception() is not None or self._rounds >= MAX_ROUNDS
        try:
            self.future.set_result(self._operation(wait))
        except ColdRead as cold:
            self.after(cold)
        except Exception as error:  # noqa: BLE001  # the waiting caller gets it
            self.future.set_exception(error)
