"""A meter like Apache Kafka's: the total count, and the rate per second over about the last minute; pure.

The rate is a weighted average over steps of five seconds. Older steps have less weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_STEP_SECONDS = 5.0
_WEIGHT = 1 - math.exp(-_STEP_SECONDS / 60)


class Rate:
    """Call `mark` for each event. `time` returns seconds and never goes back."""

    __slots__ = ("_is_new", "_rate", "_since_step", "_step_at", "_time", "count")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._step_at = time() + _STEP_SECONDS
        self._since_step = 0
        self._rate = 0.0
        self._is_new = True
        #: the total since the start
        self.count = 0

    def mark(self, count: int = 1) -> None:
        self._catch_up()
        self.count += count
        self._since_step += count

    def one_minute(self) -> float:
        """Return the rate per second."""
        self._catch_up()
        return self._rate

    def _catch_up(self) -> None:
        late = self._time() - self._step_at
        if late < 0:
            return
        steps = 1 + int(late / _STEP_SECONDS)
        now = self._since_step / _STEP_SECONDS
        self._rate = now if self._is_new else self._rate + _WEIGHT * (now - self._rate)
        self._is_new = False
        # Nothing happened in the later steps.
        self._rate *= (1 - _WEIGHT) ** (steps - 1)
        self._since_step = 0
        self._step_at += steps * _STEP_SECONDS
