"""Numbers about the last minute or so: rates, averages, maxima and percentiles, as Apache Kafka's metrics have them.

Responsible for the arithmetic. Not responsible for names (registry.py). Every class gets its clock, in seconds, which
must never go back. A recorded time is in milliseconds.

Invariant: memory does not grow with what is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_RATE_SECONDS: Final = 60.0
#: Kafka's metrics.num.samples windows of metrics.sample.window.ms each.
_WINDOWS: Final = 2
_WINDOW_SECONDS: Final = 30.0
#: Kafka's histograms begin anew when they are read, but at most once in this time. A rate keeps at most one reading in
#: this time.
_LEAST_INTERVAL_SECONDS: Final = 1.0
_LONGEST_MS: Final = 60_000
#: Times are kept with about three significant digits, as in Apache Kafka.
_EXACT_BELOW_MS: Final = 2_000
_STEP_MS: Final = 50


class RecentRate:
    """The rate at which a number grows. It covers the time since an earlier reading: the newest that is at least a
    minute old, or the oldest if all are younger than a minute. At most one reading a second is kept."""

    __slots__ = ("_now_s", "_read", "_readings", "_unit_s")

    def __init__(self, read: Callable[[], int], now_s: Callable[[], float], unit_s: float = 1.0) -> None:
        """`unit_s`: 1 for a rate per second, 60 for a rate per minute."""
        self._read = read
        self._now_s = now_s
        self._unit_s = unit_s
        self._readings = deque([(now_s(), read())])

    def __call__(self) -> float:
        """Read the number, and return the rate."""
        now_s, total = self._now_s(), self._read()
        readings = self._readings
        if now_s - readings[-1][0] >= _LEAST_INTERVAL_SECONDS:
            readings.append((now_s, total))
        while len(readings) > 1 and readings[1][0] <= now_s - _RATE_SECONDS:
            readings.popleft()
        since_s, before = readings[0]
        return (total - before) * self._unit_s / (now_s - since_s) if now_s > since_s else 0.0


class _Window:
    __slots__ = ("began_s", "count", "most_ms", "total_ms")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.count = 0
        self.total_ms = self.most_ms = 0.0


class RecentTimes:
    """The average and the maximum of times that were recorded in the last 30 to 60 seconds."""

    __slots__ = ("_now_s", "_windows")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def record(self, ms: float) -> None:
        """Add a time."""
        now_s = self._now_s()
        windows = self._windows
        if not windows or now_s - windows[-1].began_s >= _WINDOW_SECONDS:
            windows.append(_Window(now_s))
        window = windows[-1]
        window.count += 1
        window.total_ms += ms
        window.most_ms = max(window.most_ms, ms)

    def average_and_most(self) -> tuple[float, float] | None:
        """Return the average and the maximum, or None if no time was recorded."""
        ended_s = self._now_s() - _WINDOWS * _WINDOW_SECONDS
        while self._windows and self._windows[0].began_s <= ended_s:
            self._windows.popleft()
        if not self._windows:
            return None
        count = sum(window.count for window in self._windows)
        return sum(window.total_ms for window in self._windows) / count, max(one.most_ms for one in self._windows)


#: The names of a histogram's numbers, and the part of all times that is not longer than each number.
_PARTS: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


class TimeHistogram:
    """Percentiles of the times that were recorded between the last two readings. Readings that are less than a second
    apart count as one. Times of more than a minute count as a minute."""

    __slots__ = ("_counts", "_now_s", "_shown", "_shown_s", "total")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._counts: dict[int, int] = {}
        self._shown: dict[str, int] = dict.fromkeys((name for name, _ in _PARTS), 0)
        self._shown_s: float | None = None
        #: all times that were ever recorded
        self.total = 0

    def record(self, ms: float) -> None:
        """Add a time."""
        self.total += 1
        key = int(ms)
        if key >= _EXACT_BELOW_MS:
            key = min(key, _LONGEST_MS) // _STEP_MS * _STEP_MS
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1

    def numbers(self) -> dict[str, int]:
        """Return the percentiles and the maximum by their names in Apache Kafka (p50, p95, p99, p999, max). They are 0
        if nothing was recorded."""
        now_s = self._now_s()
        if self._shown_s is None or now_s - self._shown_s >= _LEAST_INTERVAL_SECONDS:
            self._shown_s = now_s
            self._shown = _percentiles(self._counts)
            self._counts = {}
        return self._shown


def _percentiles(counts: dict[int, int]) -> dict[str, int]:
    total = sum(counts.values())
    ordered = sorted(counts.items())
    found: dict[str, int] = {}
    value = seen = at = 0
    for name, part in _PARTS:
        while at < len(ordered) and seen < part * total:
            value, count = ordered[at]
            seen += count
            at += 1
        found[name] = value
    return found
