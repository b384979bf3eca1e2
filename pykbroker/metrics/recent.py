"""Numbers about the last minutes: rates, averages, maxima and percentiles, as Apache Kafka's metrics have them.

Responsible for the arithmetic. Not responsible for names (registry.py). Every class gets its clock, in seconds, which
must never go back. A recorded time is in milliseconds.

Invariant: memory does not grow with what is recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

#: Kafka's histograms begin anew when they are read, but at most once in this time.
_LEAST_INTERVAL_SECONDS: Final = 1.0
#: A rate keeps about so many readings at most.
_MOST_READINGS: Final = 60
_LONGEST_MS: Final = 60_000
#: Times are kept with about three significant digits, as in Apache Kafka.
_EXACT_BELOW_MS: Final = 2_000
_STEP_MS: Final = 50
#: Apache Kafka's older kind of histogram has mostly values of the last five minutes.
_HISTOGRAM_WINDOW_SECONDS: Final = 300.0
#: Its values are kept with this number of bits.
_BITS: Final = 7


@dataclass(slots=True, frozen=True)
class SampleWindows:
    """The windows that averages, maxima and rates cover: Kafka's metrics.num.samples and metrics.sample.window.ms."""

    count: int = 2
    #: of one window
    seconds: float = 30.0


#: the windows if nothing else is configured
KAFKAS_WINDOWS: Final = SampleWindows()


class RecentRate:
    """The rate at which a number grows. It covers the time since an earlier reading: the newest that is at least as old
    as all windows together, or the oldest if all are younger."""

    __slots__ = ("_now_s", "_read", "_readings", "_span_s", "_unit_s")

    def __init__(
        self,
        read: Callable[[], int],
        now_s: Callable[[], float],
        unit_s: float = 1.0,
        *,
        windows: SampleWindows = KAFKAS_WINDOWS,
    ) -> None:
        """`unit_s`: 1 for a rate per second, 60 for a rate per minute."""
        self._read = read
        self._now_s = now_s
        self._unit_s = unit_s
        self._span_s = windows.count * windows.seconds
        self._readings = deque([(now_s(), read())])

    def __call__(self) -> float:
        """Read the number, and return the rate."""
        now_s, total = self._now_s(), self._read()
        readings = self._readings
        if now_s - readings[-1][0] >= self._span_s / _MOST_READINGS:
            readings.append((now_s, total))
        while len(readings) > 1 and readings[1][0] <= now_s - self._span_s:
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
    """The average and the maximum of times that were recorded in the present window and in those before it, which are
    the last 30 to 60 seconds if nothing else is configured."""

    __slots__ = ("_now_s", "_span_s", "_window_s", "_windows")

    def __init__(self, now_s: Callable[[], float], windows: SampleWindows = KAFKAS_WINDOWS) -> None:
        self._now_s = now_s
        self._window_s = windows.seconds
        self._span_s = windows.count * windows.seconds
        self._windows: deque[_Window] = deque(maxlen=windows.count)

    def record(self, ms: float) -> None:
        """Add a time."""
        now_s = self._now_s()
        windows = self._windows
        if not windows or now_s - windows[-1].began_s >= self._window_s:
            windows.append(_Window(now_s))
        window = windows[-1]
        window.count += 1
        window.total_ms += ms
        window.most_ms = max(window.most_ms, ms)

    def average_and_most(self) -> tuple[float, float] | None:
        """Return the average and the maximum, or None if no time was recorded."""
        ended_s = self._now_s() - self._span_s
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


#: The quantiles of Apache Kafka's older kind of histogram, as Prometheus has them.
QUANTILES: Final = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
_NO_QUANTILES: Final = tuple((name, 0) for name, _ in QUANTILES)


class RecentHistogram:
    """The number of all values that were ever recorded, and quantiles of those of the last five to ten minutes. Reading
    changes nothing. A value is at least 0; of a large one the first seven bits are kept, so a quantile may be too small
    by less than two percent."""

    __slots__ = ("_before", "_counts", "_ends_s", "_now_s", "_shown", "count")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        #: all values that were ever recorded
        self.count = 0
        #: the end of the present window; it begins with the first value after a time without any
        self._ends_s = 0.0
        #: how often each value was recorded in the present window, and in the window before it
        self._counts: dict[int, int] = {}
        self._before: dict[int, int] = {}
        #: the quantiles, until a value is recorded or a window ends
        self._shown: tuple[tuple[str, int], ...] | None = _NO_QUANTILES

    def record(self, value: float) -> None:
        """Add a value. A fraction is cut off."""
        now_s = self._now_s()
        if now_s >= self._ends_s:
            self._end_windows(now_s)
            if not self._before:
                self._ends_s = now_s + _HISTOGRAM_WINDOW_SECONDS
        self.count += 1
        whole = int(value)
        shift = whole.bit_length() - _BITS
        if shift > 0:
            whole = whole >> shift << shift
        counts = self._counts
        counts[whole] = counts.get(whole, 0) + 1
        self._shown = None

    def quantiles(self) -> tuple[tuple[str, int], ...]:
        """Return the quantiles by their names in Prometheus. They are 0 if nothing was recorded lately."""
        now_s = self._now_s()
        if now_s >= self._ends_s:
            self._end_windows(now_s)
        if self._shown is None:
            self._shown = self._computed()
        return self._shown

    def _end_windows(self, now_s: float) -> None:
        if self._counts or self._before:
            passed = int((now_s - self._ends_s) / _HISTOGRAM_WINDOW_SECONDS) + 1
            self._before = self._counts if passed == 1 else {}
            self._counts = {}
            self._ends_s += passed * _HISTOGRAM_WINDOW_SECONDS
            self._shown = None

    def _computed(self) -> tuple[tuple[str, int], ...]:
        counts = dict(self._before)
        for value, number in self._counts.items():
            counts[value] = counts.get(value, 0) + number
        if not counts:
            return _NO_QUANTILES
        values = sorted(counts)
        upto = list(accumulate(counts[value] for value in values))
        return tuple((name, values[bisect_left(upto, part * upto[-1])]) for name, part in QUANTILES)
