"""One timer for many things that are due at different times, of which most are withdrawn before their time.

Responsible for calling at the time of the first of them. It may call too early, because a timer is not moved when the
first of them is withdrawn: its user looks what is due, and sets it again.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.runtime.client_clock import CallsAt, ClockTimer


class EarlyTimer:
    """Calls `fire` when something may be due. Times are those of `clock`, in units of which a second has
    `per_second`."""

    __slots__ = ("_clock", "_due_s", "_fire", "_handle", "_per_second")

    def __init__(self, clock: CallsAt, fire: Callable[[], object], *, per_second: int = 1) -> None:
        self._clock = clock
        self._fire = fire
        self._per_second = per_second
        self._handle: ClockTimer | None = None
        #: the time of the handle, which cannot be asked for it
        self._due_s = 0.0

    def set(self, due: float | None) -> None:
        """Call `fire` at `due`, or earlier. None if nothing is due at any time."""
        if due is None:
            return
        due_s = due / self._per_second
        if self._handle is not None:
            if self._due_s <= due_s:
                return
            self._handle.cancel()
        self._due_s = due_s
        self._handle = self._clock.call_at(due_s, self._fired)

    def cancel(self) -> None:
        """Fire no more, until the next `set`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fired(self) -> None:
        self._handle = None
        self._fire()
