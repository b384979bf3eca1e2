"""The intervals of a broker's load reports: their numbers, their lengths and the CPU time of the process in them.

Responsible for intervals that follow each other without a gap. Not responsible for when one ends (load_reporter.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class MeasuredInterval(NamedTuple):
    sequence: int
    duration_ms: int
    cpu_ms: float


class IntervalClock:
    def __init__(self, now: Callable[[], float], cpu_ms: Callable[[], float]) -> None:
        """`now` returns the seconds of a clock that never goes back, and `cpu_ms` the CPU time of this process."""
        self._now = now
        self._cpu_ms = cpu_ms
        self._sequence = 0
        self.begin()

    def begin(self) -> None:
        """Begin the interval anew."""
        self._begun, self._cpu_begun_ms = self._now(), self._cpu_ms()

    def end(self) -> MeasuredInterval:
        """End the interval and begin the next one."""
        begun, cpu_begun_ms = self._begun, self._cpu_begun_ms
        self.begin()
        duration_ms = max(1, round((self._begun - begun) * 1000))
        measured = MeasuredInterval(self._sequence, duration_ms, self._cpu_begun_ms - cpu_begun_ms)
        self._sequence += 1
        return measured
