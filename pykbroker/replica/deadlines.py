"""Deadlines of requests that wait, on a coarse clock: many share one timer of the loop.

A thousand idle consumers end two thousand long polls a second. With a timer each, every one would wake the process up.
A deadline is never early and at most one tick late, like those of Kafka's timing wheel.
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
    """The deadlines of one loop. A cancelled one stays in its tick until that is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticks: dict[int, list[Deadline]] = {}

    def after(self, seconds: float, callback: Callable[[], object]) -> Deadline:
        """Call `callback()` once, no earlier than after this time."""
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
        # A timer runs only the deadlines that it was made for, so two timers of one tick do not share any.
        if self._ticks.get(tick) is due:
            del self._ticks[tick]
        for deadline in due:
            try:
                deadline.pass_by()
            except Exception as error:  # noqa: BLE001  # a bug of this deadline alone, because others share its timer
                self.loop.call_exception_handler({"message": "A deadline could not be kept", "exception": error})
