"""Wakes the fetches that wait for one share partition, one after another, until nothing is left for the next.

All records that a fetch can acquire go to the first fetch that has room for them. A thousand members that wait would
otherwise read for one record. A turn of the loop wakes few fetches, because each of them reads the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pykbroker.replica.partition import ENOUGH

if TYPE_CHECKING:
    from pykbroker.replica.parked import FetchWaiter

#: the most fetches that one turn of the loop wakes
WAKES_PER_TURN: Final = 16


class FetchWakes:
    """`waiters` are the fetches in the order in which they came. `has_more` returns True if the next of them may get
    records or an error."""

    __slots__ = ("_has_more", "_loop", "_turn", "_waiters", "_waking")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waiters: dict[FetchWaiter, None], has_more: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._waiters = waiters
        self._has_more = has_more
        #: the fetches that are still to be woken
        self._waking: Iterator[FetchWaiter] = iter(())
        self._turn: asyncio.Handle | None = None

    def soon(self) -> None:
        """Wake fetches in the next turn of the loop."""
        if self._waiters:
            self._waking = iter(list(self._waiters))
            if self._turn is None:
                self._turn = self._loop.call_soon(self._run)

    def now(self) -> None:
        """Wake fetches in this turn of the loop, and, if there are many, in turns after it."""
        if self._turn is None:
            self._waking = iter(list(self._waiters))
            self._run()
        else:
            self.soon()

    def _run(self) -> None:
        self._turn = None
        waking = self._waking
        for _ in range(WAKES_PER_TURN):
            waiter = next(waking, None) if self._has_more() else None
            if waiter is None:
                return
            waiter.poke(ENOUGH)
        if waking is self._waking and self._turn is None:
            self._turn = self._loop.call_soon(self._run)
