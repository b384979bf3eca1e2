"""Work that a coordinator does by itself, again and again: expired ids, overdue transactions, redundant records.

Responsible for the timers. Not responsible for the work, nor for a run that is not over when the next one is due: an
action returns at once, and what it has begun goes on by itself.

Invariants: an action first runs one interval after `every`. After `close` no action runs.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.runtime.client_clock import ClientClock, ClockTimer


class RepeatedWork:
    """The repeated actions of one coordinator."""

    __slots__ = ("_clock", "_handles")

    def __init__(self, clock: ClientClock) -> None:
        self._clock = clock
        #: by the number of the action; None once they are closed
        self._handles: dict[int, ClockTimer] | None = {}

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run the action at each end of an interval, until `close`. An error of one run does not stop the next."""
        if self._handles is not None:
            self._arm(len(self._handles), interval_ms / 1000, action)

    def _arm(self, number: int, seconds: float, action: Callable[[], None]) -> None:
        def run() -> None:
            if self._handles is not None:
                self._arm(number, seconds, action)
                action()

        assert self._handles is not None
        self._handles[number] = self._clock.repeat_at(self._clock.time() + seconds, run)

    def close(self) -> None:
        """Run no action from now on."""
        for handle in (self._handles or {}).values():
            handle.cancel()
        self._handles = None
