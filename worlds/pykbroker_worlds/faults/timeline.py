"""The times of faults: each begins at its own, lasts for a while, and all of them may be ended early.

Responsible for waiting. Not responsible for what a fault does (faults.py, app_faults.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar


class Timed(Protocol):
    """A fault, as far as its time is concerned."""

    @property
    def at(self) -> float:
        """Seconds since the begin of the run."""


F = TypeVar("F", bound=Timed)


class Timeline:
    """`run` begins faults, `last` lets one of them last, and `end` ends them all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def run(
        self,
        faults: Sequence[F],
        seconds: float,
        do: Callable[[F], Coroutine[Any, Any, None]],
        tasks: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Begin each fault at its time, in their order, and return after `seconds`. `tasks` runs one concurrently with
        the others."""
        began = self._loop.time()
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at - self._loop.time()))
            tasks(do(fault))
        await asyncio.sleep(max(0.0, began + seconds - self._loop.time()))

    async def last(self, seconds: float) -> None:
        """Wait for `seconds`, or until all faults are over."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    def end(self) -> None:
        self._over.set()
