"""The control loop's check that the broker loop turns.

The control loop asks for a sign of life every `interval`, unless an earlier question waits, and counts the time until
the answer comes. Only time in which the control loop itself turned counts. If the whole process was stopped, the broker
loop is not at fault. Responsible for the count. Not responsible for asking (control_end.py), nor for the consequences.
Pure.

Invariant: `silent_seconds` is never more than the time since the last sign of life.
"""

from __future__ import annotations


class Pulse:
    """Times are seconds of the control loop's clock."""

    def __init__(self, interval: float) -> None:
        """`interval`: from one `tick` to the next."""
        self._interval = interval
        self._ticked: float | None = None
        #: seconds since the last sign of life
        self.silent_seconds = 0.0
        self.is_asked = False

    def tick(self, now: float) -> bool:
        """Count the time since the last tick. Return True if a sign of life must be asked for."""
        if self._ticked is not None and self.is_asked:
            # If more than two intervals have passed, the control loop itself did not turn in the time beyond them.
            self.silent_seconds += min(now - self._ticked, 2 * self._interval)
        self._ticked = now
        if self.is_asked:
            return False
        self.is_asked = True
        return True

    def came(self) -> None:
        """Record that the sign of life is there."""
        self.silent_seconds = 0.0
        self.is_asked = False
