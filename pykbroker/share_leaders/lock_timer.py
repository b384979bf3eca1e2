"""The timer of a leader for the locks of its share partition: one timer, whatever the number of locks.

Responsible for calling at the time of the first lock. Not responsible for which locks have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LockTimer:
    """Calls `expire` when a lock may have ended. Times are milliseconds of the loop's clock."""

    __slots__ = ("_expire", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], object]) -> None:
        self._loop = loop
        self._expire = expire
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ms: int | None) -> None:
        """Call `expire` at `due_ms`, or earlier. A timer that fires too early is set again by its user."""
        if due_ms is None:
            return
        due = due_ms / 1000
        if self._handle is not None:
            if self._handle.when() <= due:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(due, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fired(self) -> None:
        self._handle = None
        self._expire()
