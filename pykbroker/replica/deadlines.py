"""Deadlines of requests that wait, in steps of a coarse clock, so that many deadlines share one timer of the loop.

A thousand idle consumers end two thousand long polls a second. If each had its own timer, each would wake the process
up. A deadline is never early, and at most one tick late, as in Kafka's timing wheel.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

TICK_SECONDS = 0.005


class Deadline:
    """A deadline, made by `Deadlines.after`."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def pass_by(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Deadlines:
    """The deadlines of one loop. A cancelled deadline stays in its tick until the tick is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticks: dict[int, list[Deadline]] = {}

    def after(self, seconds: float, callback: Callable[[], object]) -> Deadline:
        """Call `callback()` once, after this time or up to one tick later."""
        tick = math.ceil((self.loop.time() + seconds) / TICK_SECONDS)
        deadline = Deadline(callback)
        due = self._ticks.get(tick)
        if due is None:
            self._ticks[tick] = due = [deadline]
            self.loop.call_at(tick * TICK_SECONDS, self._run, tick, due)
        else:
            due.append(deadline)
        return deadline

    def _run(self, tick: int, due: list[Deadline]) -> None:
        # A timer runs only the deadlines for which it was made. Another list for the same tick has its own timer.
        if self._ticks.get(tick) is due:
            del self._ticks[tick]
        for deadline in due:
            try:
                deadline.pass_by()
            except Exception as error:  # noqa: BLE001  # a bug of this deadline alone, because others share its timer
                self.loop.call_exception_handler({"message": "A deadline could not be kept", "exception": error})
