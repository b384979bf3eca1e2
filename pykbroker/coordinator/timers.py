"""Named timers of one shard. They must be cheap to move, because each heartbeat moves one.

Responsible for turning deadlines into inputs, on the clock that clients feel. Not responsible for what they mean.

Invariants: at most one deadline per name. An earlier deadline moves the clock's handle. A later deadline is only noted,
and the handle is set again when it fires too early. So the clock's heap is touched once per timeout and not once per
heartbeat.

A test may move the clock over hours in some milliseconds, and a member can send no heartbeat within these hours. So a
timer that waits for a member and begins during such an advance is counted from the end of the advance. A timer that
began before it ends in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.coordinator.result import WAITS_FOR_MEMBER, Timer, TimerKey
from pykbroker.runtime.client_clock import ClientClock, ClockTimer


class _Armed:
    __slots__ = ("began", "deadline", "event", "handle", "wakes_at")

    def __init__(self, began: float, deadline: float, event: Any, handle: ClockTimer) -> None:
        #: the time from which the deadline is counted; a deadline that is set again is not counted from an earlier one
        self.began = began
        self.deadline = deadline
        self.event = event
        self.handle = handle
        self.wakes_at = deadline


class Timers:
    """`fire(key, event)` is called once for each deadline that is reached."""

    __slots__ = ("_armed", "_clock", "_fire")

    def __init__(self, clock: ClientClock, fire: Callable[[TimerKey, Any], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._armed: dict[TimerKey, _Armed] = {}

    def __len__(self) -> int:
        return len(self._armed)

    def apply(self, timer: Timer) -> None:
        armed = self._armed.get(timer.key)
        if timer.delay_ms is None:
            if armed is not None:
                armed.handle.cancel()
                del self._armed[timer.key]
            return
        if armed is not None:
            began = armed.began = max(self._clock.time(), armed.began)
        elif timer.key[0] in WAITS_FOR_MEMBER:
            began = self._clock.time_after_advance()
        else:
            began = self._clock.time()
        deadline = began + timer.delay_ms / 1000
        if armed is not None:
            armed.deadline = deadline
            armed.event = timer.event
            if deadline < armed.wakes_at:
                armed.handle.cancel()
                armed.handle = self._clock.call_at(deadline, self._wake, timer.key)
                armed.wakes_at = deadline
        else:
            call_at = self._clock.repeat_at if timer.repeats else self._clock.call_at
            self._armed[timer.key] = _Armed(began, deadline, timer.event, call_at(deadline, self._wake, timer.key))

    def _wake(self, key: TimerKey) -> None:
        armed = self._armed[key]
        if armed.deadline > armed.wakes_at:
            armed.wakes_at = armed.deadline
            armed.handle = self._clock.call_at(armed.deadline, self._wake, key)
            return
        del self._armed[key]
        self._fire(key, armed.event)

    def end(self, key: TimerKey) -> bool:
        """Reach the deadline of this name now. Return False if there is none."""
        armed = self._armed.pop(key, None)
        if armed is None:
            return False
        armed.handle.cancel()
        self._fire(key, armed.event)
        return True

    def close(self) -> None:
        """Stop all timers, and drop the reference to the owner of `fire`, because the two refer to each other."""
        self.clear()
        self._fire = lambda key, event: None

    def clear(self) -> None:
        for armed in self._armed.values():
            armed.handle.cancel()
        self._armed.clear()
