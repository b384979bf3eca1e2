"""The one timer of a raft node, set again after each input.

Responsible for setting the loop's timer only when the deadline changes, because most inputs leave it as it is. Not
responsible for the deadline (`pykbroker_raft`), nor for what is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """`fire` is called once when the deadline is reached. Deadlines are in milliseconds of the loop's clock."""

    __slots__ = ("_at_ms", "_fire", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def set(self, deadline_ms: int | None, *, may_begin: bool = True) -> None:
        """Fire at `deadline_ms`, or never if it is None. If `may_begin` is False, a timer for this deadline stays, but
        no new timer is set."""
        if self._handle is not None:
            if deadline_ms == self._at_ms:
                return
            self.cancel()
        if deadline_ms is not None and may_begin:
            self._at_ms = deadline_ms
            # Half a millisecond late: if the timer fires at exactly 0.02 s, a clock in whole milliseconds may read 19,
            # and nothing would be due.
            self._handle = self._loop.call_at((deadline_ms + 0.5) / 1000, self._reached)

    def cancel(self) -> None:
        """Fire no more, until the next `set`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _reached(self) -> None:
        self._handle = None
        self._fire()
