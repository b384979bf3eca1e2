"""Limits the time for which the requests of one client wait for answers, also of requests that already wait.

Responsible for the end of each wait. Not responsible for the waiting itself (node_connection.py), nor for what a client
does when time is over.

Invariants
* A request that begins after the end may still wait a little, so that a healthy node answers a client that is in a
  hurry. It is `_LEAST_SECONDS` first, and half as much after each wait in vain. So all nodes that do not answer cost
  twice `_LEAST_SECONDS` together, however many they are.
* After `give_up` the end of the waits only comes closer.
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
        #: what a request gets after the end
        self.least_seconds = _LEAST_SECONDS

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
        self.least_seconds = _LEAST_SECONDS

    def give_up(self, seconds: float) -> None:
        """End the waits after so many seconds. A later call can only make that time shorter."""
        self._gives_up_at = min(self._gives_up_at, time.monotonic() + seconds)

    def waited_in_vain(self) -> None:
        """Note that time was over for a wait."""
        if self.is_over:
            self.least_seconds /= 2


class WaitLimit:
    """The end of one wait."""

    __slots__ = ("_at", "_is_over", "_least_at", "_patience")

    def __init__(self, timeout_seconds: float, patience: ClientPatience) -> None:
        """`timeout_seconds`: the limit of this wait, which begins now."""
        now = time.monotonic()
        self._at = now + timeout_seconds
        self._least_at = now + patience.least_seconds
        self._patience = patience
        self._is_over = False

    def left(self) -> float:
        """Return how many seconds are left. Raises TimeoutError if none are."""
        left = min(self._at, max(self._patience.ends_at, self._least_at)) - time.monotonic()
        if left <= 0:
            if not self._is_over:
                self._is_over = True
                self._patience.waited_in_vain()
            raise TimeoutError
        return left
