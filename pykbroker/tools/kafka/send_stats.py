"""The lines of kafka-producer-perf-test: one per window, and the totals.

Responsible for Apache Kafka's arithmetic: whole milliseconds, and a sample of at most a million latencies. It reads no
clock; the caller passes every time, in milliseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from pykbroker.tools.kafka.java_text import java_fixed, java_ratio
from pykbroker.tools.kafka.perf_report import MEBIBYTE

_SAMPLES: Final = 500_000
_PERCENTILES: Final = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))


class SendStats:
    """The acknowledged records of a run, or of its steady state, which begins after the warmup."""

    def __init__(
        self, records: int, now_ms: int, interval_ms: int, say: Callable[[str], None], *, is_steady: bool = False
    ) -> None:
        self._began_ms = self._window_began_ms = now_ms
        self._interval_ms = interval_ms
        self._say = say
        self._is_steady = is_steady
        self._is_silent = False
        self._every = records // min(records, _SAMPLES)
        self._sample = array("q")
        self._total = _Sum()
        self._window = _Sum()

    def silence(self) -> None:
        """Print no more windows, because the steady state prints its own."""
        self._is_silent = True

    def record(self, latency_ms: int, size_bytes: int, now_ms: int) -> None:
        if self._total.count % self._every == 0:
            self._sample.append(latency_ms)
        self._total.add(latency_ms, size_bytes)
        self._window.add(latency_ms, size_bytes)
        if now_ms - self._window_began_ms >= self._interval_ms:
            if self._is_steady and self._total.count == self._window.count:
                self._say("In steady state.")
            if not self._is_silent:
                self._say(self._window_line(now_ms))
            self._window = _Sum()
            self._window_began_ms = now_ms

    def _window_line(self, now_ms: int) -> str:
        window = self._window
        elapsed_ms = now_ms - self._window_began_ms
        return (
            f"{window.count} records sent, {java_fixed(window.per_second(elapsed_ms), 1)} records/sec "
            f"({java_fixed(window.megabytes_per_second(elapsed_ms), 2)} MB/sec), "
            f"{java_fixed(window.mean_ms(), 1)} ms avg latency, {java_fixed(window.greatest_ms, 1)} ms max latency."
        )

    def total_line(self, now_ms: int) -> str:
        total = self._total
        elapsed_ms = now_ms - self._began_ms
        ranked = sorted(self._sample) or [0]
        slow = ", ".join(f"{ranked[int(share * len(ranked))]} ms {name}" for share, name in _PERCENTILES)
        return (
            f"{total.count}{' steady state' if self._is_steady else ''} records sent, "
            f"{java_fixed(total.per_second(elapsed_ms), 6)} records/sec "
            f"({java_fixed(total.megabytes_per_second(elapsed_ms), 2)} MB/sec), "
            f"{java_fixed(total.mean_ms(), 2)} ms avg latency, "
            f"{java_fixed(total.greatest_ms, 2)} ms max latency, {slow}."
        )


class _Sum:
    __slots__ = ("count", "greatest_ms", "latency_ms", "size_bytes")

    def __init__(self) -> None:
        self.count = self.size_bytes = self.latency_ms = self.greatest_ms = 0

    def add(self, latency_ms: int, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes
        self.latency_ms += latency_ms
        self.greatest_ms = max(self.greatest_ms, latency_ms)

    def per_second(self, elapsed_ms: int) -> float:
        return java_ratio(1000.0 * self.count, elapsed_ms)

    def megabytes_per_second(self, elapsed_ms: int) -> float:
        return java_ratio(1000.0 * self.size_bytes / MEBIBYTE, elapsed_ms)

    def mean_ms(self) -> float:
        return java_ratio(self.latency_ms, self.count)
