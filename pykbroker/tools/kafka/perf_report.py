"""The parts that the perf tools share besides their rates: sums of records, the clock, the table of a client's metrics,
and a warning if the client was the limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykbroker.tools.kafka.java_text import java_fixed

MEBIBYTE: Final = 1 << 20
#: In a shorter run, the share of processor time is too imprecise for a warning.
_LEAST_SECONDS: Final = 1.0


@dataclass(slots=True)
class Read:
    """The number of records that were read up to a moment, and the bytes of their keys and values."""

    records: int = 0
    size_bytes: int = 0


def wall_ms() -> int:
    """Return the time of the wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class ClientLoad:
    """Measures the share of the time in which this process used the processor."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cpu_began = time.process_time()

    def warn(self) -> None:
        """Write a line on standard error if the client may have set the rate."""
        from pykbroker.tools.bench.load_result import busy_note

        seconds = time.monotonic() - self._began
        note = busy_note((time.process_time() - self._cpu_began) / seconds if seconds else 0.0)
        if note and seconds >= _LEAST_SECONDS:
            print(f"WARN {note}", file=sys.stderr)


def print_metrics(metrics: Mapping[Any, Any] | None) -> None:
    """Print kafka-python's raw metrics, or none, in the table of Apache Kafka's tools."""
    rows = {}
    for name, metric in (metrics or {}).items():
        tags = ", ".join(f"{key}={value}" for key, value in name.tags.items())
        value = metric.value()
        is_number = isinstance(value, int | float)
        rows[f"{name.group}:{name.name}:{{{tags}}}"] = java_fixed(float(value), 3) if is_number else str(value)
    width = max(map(len, rows), default=0)
    print(f"\n{'Metric Name':<{width}}   Value")
    for name, value in sorted(rows.items()):
        print(f"{name:<{width}} : {value}")
