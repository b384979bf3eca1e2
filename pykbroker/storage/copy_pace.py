"""The throttle of replicas that move between log directories: when the next stretch of bytes may be copied.

All moves share one rate. Bytes may be copied faster than the rate for a moment, and then no stretch begins until the
rate has caught up. Not responsible for what is copied (moves.py). Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker_log.log_config import MAX_INT64


class CopyPace:
    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a clock that never goes back."""
        self._now = now
        self._free_at = 0.0
        self.bytes_per_second = MAX_INT64

    @property
    def wait_seconds(self) -> float:
        """The time until the next stretch may begin."""
        return max(0.0, self._free_at - self._now())

    def spend(self, count: int) -> None:
        """Note that `count` bytes were copied."""
        self._free_at = max(self._free_at, self._now()) + count / self.bytes_per_second

    def change(self, bytes_per_second: int) -> bool:
        """Apply another rate, also to the bytes that are copied already. Return False if it is the present rate."""
        if bytes_per_second == self.bytes_per_second:
            return False
        self._free_at = self._now() + self.wait_seconds * self.bytes_per_second / bytes_per_second
        self.bytes_per_second = bytes_per_second
        return True
