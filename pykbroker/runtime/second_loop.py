"""A second event loop on its own thread.

Responsible for the thread, from the first use to `close`. Not responsible for the work on the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pykbroker.runtime.beside import run_there
from pykbroker.runtime.world import Runtime

if TYPE_CHECKING:
    from pykbroker.runtime.world import CallSoon

T = TypeVar("T")


class OwnedRuntime(Runtime, Protocol):
    """A runtime that its owner must close."""

    def close(self) -> None: ...


R = TypeVar("R", bound=OwnedRuntime)


def _close(runtime: OwnedRuntime) -> None:
    runtime.close()
    runtime.loop.close()


class SecondLoop(Generic[R]):
    """A `Beside` with its own thread. Call its methods on the first loop."""

    def __init__(
        self,
        first: Runtime,
        new_loop: Callable[[], asyncio.AbstractEventLoop],
        make: Callable[[asyncio.AbstractEventLoop], R],
        end: Callable[[R], None] = _close,
    ) -> None:
        """`make` returns the runtime of the second loop. `end` is called on the second loop's thread when the loop has
        stopped. The first `run` starts the thread."""
        loop = self._loop = new_loop()
        self._own = make(loop)
        self._end_with = end
        self.runtime: Runtime = self._own
        self.call_there: CallSoon | None = loop.call_soon_threadsafe
        self.call_back: CallSoon | None = first.loop.call_soon_threadsafe
        self._first = first
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="pykbroker-broker-loop", daemon=True)
            self._thread.start()
        assert self.call_there is not None
        assert self.call_back is not None
        return await run_there(self._first.loop, self._loop, self.call_there, self.call_back, work)

    async def close(self) -> None:
        """End the second loop and its thread. Both have ended when this returns."""
        if self._thread is None:
            self.discard()
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        await self._first.run_blocking(self.join)

    def discard(self) -> None:
        """End a second loop that was never used. Does nothing if it was used or has ended."""
        if self._thread is None and not self._loop.is_closed():
            self._end_with(self._own)

    def join(self) -> None:
        """Wait until the thread has ended. Call this on any other thread."""
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._end_with(self._own)
