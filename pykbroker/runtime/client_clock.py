"""The clock of the time that clients feel: of the sessions of group members, of the time-outs of transactions, of locks
of share groups, and of the ages of records.

A test may move this clock and nothing else (testing/client_time.py). The node's own life is on the loop's clock: its
sessions with the controller, elections, the lag of replicas, the time-outs of requests and connections, and long polls.
`docs/decisions/0041-a-clock-that-moves.md` lists which part of a node uses which clock.

Responsible for the interface, and for the clock of every node outside of tests, which is the loop's. Not responsible
for the policy of any part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from pykbroker_log.jumps import NO_JUMPS, Jumps


def wall_clock_ms() -> int:
    """Return the wall-clock milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class ClockTimer(Protocol):
    """A call that a clock makes later."""

    def cancel(self) -> None: ...


class CallsAt(Protocol):
    """A clock that calls functions: a `ClientClock`, or a loop."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> ClockTimer:
        """Call `callback(*args)` on the loop when `time()` has reached `when`."""
        ...


class ClientClock(CallsAt, Protocol):
    """The time that clients feel. It belongs to one loop, and is used on it."""

    loop: asyncio.AbstractEventLoop

    def time(self) -> float:
        """Return seconds since an arbitrary time. They never go back."""
        ...

    def time_after_advance(self) -> float:
        """Return the time at the end of the advance that is being made, or `time()` if there is none."""
        ...

    def repeat_at(self, when: float, callback: Callable[..., object], *args: Any) -> ClockTimer:
        """Do what `call_at` does, for work that is repeated again and again. If the clock is moved over many of its
        times, the work is done less often than its interval says."""
        ...

    def now_ms(self) -> int:
        """Return the wall-clock time of the parts on this loop, as `Runtime.now_ms` does."""
        ...

    @property
    def jumps(self) -> Jumps:
        """The jumps of this clock so far, with the ages of records that follow from them."""
        ...


class LoopClock:
    """The clock of a loop as a `ClientClock`, without a jump."""

    __slots__ = ("call_at", "jumps", "loop", "now_ms", "repeat_at", "time", "time_after_advance")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # The loop's own methods, so that a call costs nothing more.
        self.time: Callable[[], float] = loop.time
        self.time_after_advance: Callable[[], float] = loop.time
        self.call_at: Callable[..., ClockTimer] = loop.call_at
        self.repeat_at: Callable[..., ClockTimer] = loop.call_at
        self.now_ms: Callable[[], int] = wall_clock_ms
        self.jumps = NO_JUMPS
