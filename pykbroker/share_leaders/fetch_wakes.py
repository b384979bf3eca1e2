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

    __slots__ = ("_has_more", "_is_due", "_loop", "_turn", "_waiters", "_waking")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waiters: dict[FetchWaiter, None], has_more: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._waiters = waiters
        self._has_more = has_more
        #: the fetches that the pass under way has still to wake; None if no pass is under way
        self._waking: Iterator[FetchWaiter] | None = None
        #: True if a pass has to begin, after the pass under way if there is one
        self._is_due = False
        self._turn: asyncio.Handle | None = None

    def soon(self) -> None:
        """Wake fetches in the next turn of the loop. A pass that is under way ends first: if it began anew at each
        event, the last fetches would never be woken."""
        if self._waiters:
            self._is_due = True
            self._call_soon()

    def now(self) -> None:
        """Wake fetches in this turn of the loop, and, if there are many, in turns after it."""
        if self._turn is None and self._waking is None:
            self._run()
        else:
            self.soon()

    def _call_soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._turn = None
        if self._waking is None:
            self._is_due = False
            self._waking = iter(list(self._waiters))
        for _ in range(WAKES_PER_TURN):
            waiter = next(self._waking, None) if self._has_more() else None
            if waiter is None:
                # The fetches that were answered, and the records that they have, are not kept.
                self._waking = None
                break
            waiter.poke(ENOUGH)
        if self._waking is not None or self._is_due:
            self._call_soon()
