"""Limits the time for which the requests of one client wait for answers, also of requests that already wait.

Responsible for the end of each wait. Not responsible for the waiting itself (node_connection.py), nor for what a client
does when time is over.

Invariants: A request may wait for `_LEAST_SECONDS`, unless its own time limit is shorter. So a healthy node still
answers a request of a client that is in a hurry. After `give_up` the end of the waits only comes closer.
"""

from __future__ import annotations

import math
import time
from typing import Final

_LEAST_SECONDS: Final = 1.0


class ClientPatience:
    """The end that all requests of a client have in common. A signal handler and other threads may change it."""

    def __init__(self) -> None:
        #: times of `time.monotonic()`
        self._until = math.inf
        self._gives_up_at = math.inf

    @property
    def has_given_up(self) -> bool:
        return self._gives_up_at < math.inf

    @property
    def is_over(self) -> bool:
        """Return True if no request may wait for a node that has not answered the last one."""
        return self.has_given_up or time.monotonic() >= self._until

    @property
    def ends_at(self) -> float:
        """The end of all requests, as a time of `time.monotonic()`."""
        # Two attributes, because a signal handler may give up between a test and an assignment of the client.
        return self._gives_up_at if self.has_given_up else self._until

    def wait_until(self, at: float) -> None:
        """End the waits at this time of `time.monotonic()`, instead of an earlier or later one."""
        self._until = at

    def give_up(self, seconds: float) -> None:
        """End the waits after so many seconds. A later call can only make that time shorter."""
        self._gives_up_at = min(self._gives_up_at, time.monotonic() + seconds)


class WaitLimit:
    """The end of one wait."""

    __slots__ = ("_at", "_least_at", "_patience")

    def __init__(self, timeout_seconds: float, patience: ClientPatience) -> None:
        """`timeout_seconds`: the limit of this wait, which begins now."""
        now = time.monotonic()
        self._at = now + timeout_seconds
        self._least_at = now + _LEAST_SECONDS
        self._patience = patience

    def left(self) -> float:
        """Return how many seconds are left. Raises TimeoutError if none are."""
        left = min(self._at, max(self._patience.ends_at, self._least_at)) - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left
