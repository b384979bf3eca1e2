"""Whether the broker loop turns, as the control loop sees it.

The control loop asks for a sign of life every `interval` and counts the time until it comes. Only time in which it
turned itself counts: a process that was stopped as a whole has not let its broker loop stand still. Responsible for the
count. Not responsible for asking (control_end.py), nor for what follows from it. Pure.

Invariant: `silent_seconds` is never more than the time since the last sign of life came.
"""

from __future__ import annotations


class Pulse:
    """Times are seconds of the control loop's clock."""

    def __init__(self, interval: float) -> None:
        """`interval`: from one `tick` to the next."""
        self._interval = interval
        self._ticked: float | None = None
        #: since the last sign of life
        self.silent_seconds = 0.0
        self.is_asked = False

    def tick(self, now: float) -> bool:
        """Time has passed. Return True if a sign of life is to be asked for."""
        if self._ticked is not None and self.is_asked:
            # What is more than two intervals the control loop did not turn itself.
            self.silent_seconds += min(now - self._ticked, 2 * self._interval)
        self._ticked = now
        if self.is_asked:
            return False
        self.is_asked = True
        return True

    def came(self) -> None:
        """The sign of life is there."""
        self.silent_seconds = 0.0
        self.is_asked = False
