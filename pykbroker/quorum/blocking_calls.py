"""The driver's blocking calls: each call runs on a thread, and when it returns, its callback runs on the loop.

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
        future = self._runtime.run_blocking(call)
        self._under_way.add(future)

        def returned(done: asyncio.Future[T]) -> None:
            self._under_way.discard(done)
            then(done)

        future.add_done_callback(returned)
        return future

    async def all_returned(self) -> None:
        while self._under_way:
            await asyncio.wait(set(self._under_way))
