"""Works on the changes of a share partition in several turns of the loop, one change after another.

An acknowledgement of 100,000 ranges goes on in fifty turns (share_partitions/state_changes.py). A later acknowledgement
or release of the same share partition begins when it is whole. So the release at the end of a session takes nothing
from the acknowledgement in the request that ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.share_partitions.state_changes import StateChange

Begin = Callable[[], StateChange]
Whole = Callable[[StateChange], object]


class ChangeTurns:
    """The changes of one share partition that are not whole."""

    __slots__ = ("_is_busy", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_busy = False
        # There are at most as many as requests under way: each request waits for its own.
        self._waiting: list[tuple[Begin, Whole]] = []

    def begin(self, begin: Begin, whole: Whole) -> None:
        """Begin a change after the changes before it. Call `whole(change)` when it is whole, within this call if no
        other change is under way and it takes one turn."""
        if self._is_busy:
            self._waiting.append((begin, whole))
            return
        change = begin()
        if change.is_whole:
            whole(change)
        else:
            self._is_busy = True
            self._loop.call_soon(self._go_on, change, whole)

    def finish(self, change: StateChange, whole: Whole) -> None:
        """Call `whole(change)` when a change is whole that waits for no other, because its records are its own."""
        if change.is_whole:
            whole(change)
        else:
            self._loop.call_soon(self._finish, change, whole)

    def _finish(self, change: StateChange, whole: Whole) -> None:
        change.go_on()
        self.finish(change, whole)

    def _go_on(self, change: StateChange, whole: Whole) -> None:
        if not change.go_on():
            self._loop.call_soon(self._go_on, change, whole)
            return
        self._is_busy = False
        waiting, self._waiting = self._waiting, []
        whole(change)
        for begin, then in waiting:
            self.begin(begin, then)
