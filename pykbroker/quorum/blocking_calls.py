"""The driver's blocking calls: each call runs on a thread, and when it returns, its callback runs on the loop.

A call that writes little and waits only for its fsync runs on the loop if the disk waits for no device. The way to a
thread and back would take longer than the call.

Responsible for knowing the calls under way, so that the disk is closed after the last one. Not responsible for their
order, nor for their errors, which the callback reads from the future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pykbroker.runtime import Runtime

T = TypeVar("T")


class BlockingCalls:
    """The blocking calls of one driver. All methods must be called on the loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: set[asyncio.Future[Any]] = set()

    def run(self, call: Callable[[], T], then: Callable[[asyncio.Future[T]], None]) -> asyncio.Future[T]:
        """Run a call on a thread."""
        return self._follow(self._runtime.run_blocking(call), then)

    def run_fsync(self, call: Callable[[], T], then: Callable[[asyncio.Future[T]], None]) -> asyncio.Future[T]:
        """Run a call that waits for nothing but fsync. `then` runs in a later turn of the loop in any case."""
        if self._runtime.disk.fsync_waits:
            return self.run(call, then)
        future: asyncio.Future[T] = self._runtime.loop.create_future()
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001  # as an executor: `then` reads it
            future.set_exception(error)
        return self._follow(future, then)

    def _follow(self, future: asyncio.Future[T], then: Callable[[asyncio.Future[T]], None]) -> asyncio.Future[T]:
        self._under_way.add(future)

        def returned(done: asyncio.Future[T]) -> None:
            self._under_way.discard(done)
            then(done)

        future.add_done_callback(returned)
        return future

    async def all_returned(self) -> None:
        while self._under_way:
            await asyncio.wait(set(self._under_way))
