"""Decides when a sender may send: pure, on a clock in milliseconds that its caller passes in.

One request is in flight at a time. After a failure there is a pause, which doubles with each failure up to
`last_pause_ms`. Only a change of the leader ends it early. While no leader is known, nothing is due.
"""

from __future__ import annotations


class Pace:
    """`due_ms` is the time of the next request. Call `sent`, then `answered` or `failed`."""

    def __init__(self, first_pause_ms: int, last_pause_ms: int) -> None:
        self.in_flight = False
        self.failures = 0
        self._first_pause_ms = first_pause_ms
        self._last_pause_ms = max(first_pause_ms, last_pause_ms)
        self._has_leader = False
        self._wanted_ms: int | None = None
        self._paused_until_ms = 0

    @property
    def due_ms(self) -> int | None:
        """The time of the next request. None if there is nothing to send, while a request is in flight, and while no
        leader is known."""
        if self.in_flight or not self._has_leader or self._wanted_ms is None:
            return None
        return max(self._wanted_ms, self._paused_until_ms)

    def want(self, at_ms: int) -> None:
        """Note that a request is to be sent at this time, unless one is due earlier."""
        self._wanted_ms = at_ms if self._wanted_ms is None else min(self._wanted_ms, at_ms)

    def nothing_to_send(self) -> None:
        self._wanted_ms = None

    def sent(self) -> None:
        self.in_flight = True
        self._wanted_ms = None

    def answered(self) -> None:
        self.in_flight = False
        self.failures = 0

    def failed(self, now_ms: int) -> int:
        """Make the request due again after a pause, and return the pause."""
        self.in_flight = False
        pause_ms = min(self._last_pause_ms, self._first_pause_ms << min(self.failures, 20))
        self.failures += 1
        self._paused_until_ms = now_ms + pause_ms
        self.want(now_ms)
        return pause_ms

    def leader_changed(self, leader_known: bool, now_ms: int) -> None:
        """Note that the leader has changed. If there is a new leader, a request that was in flight to the former
        leader, or that failed there, is due at once."""
        self._has_leader = leader_known
        if leader_known:
            self._paused_until_ms = 0
            if self.in_flight:
                self.in_flight = False
                self.want(now_ms)
