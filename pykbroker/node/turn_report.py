"""Counts the turns of a node's loop that take more than 100 ms, by their reason, and logs such a turn at most once a
minute.

During a turn of the broker loop no client is served; during one of the control loop no heartbeat is sent.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from pykbroker.metrics.registry import Metrics
from pykbroker.runtime.line_limit import LineLimit
from pykbroker.runtime.slow_turns import SlowTurn

logger = logging.getLogger(__name__)

_METRIC: Final = "pykbroker:type=EventLoop,name="
#: In seconds. Clients notice a turn of this length; shorter turns also happen on a busy machine.
_WARN_SECONDS: Final = 1.0


class SlowTurnReport:
    """The report about one loop. Call it with each slow turn."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        """`name`: the name of the loop; a log line begins with it."""
        self._metrics = metrics
        self._name = name
        self._lines = LineLimit(time.monotonic)
        self._longest_ms = 0.0
        self._longest_cpu_ms = 0.0
        metrics.gauge(f"{_METRIC}LongestTurnMs", lambda: self._longest_ms)
        metrics.gauge(f"{_METRIC}LongestTurnCpuMs", lambda: self._longest_cpu_ms)

    def __call__(self, turn: SlowTurn) -> None:
        self._metrics.count(f"{_METRIC}SlowTurns,reason={turn.reason}")
        self._longest_ms = max(self._longest_ms, turn.seconds * 1000)
        self._longest_cpu_ms = max(self._longest_cpu_ms, turn.cpu_seconds * 1000)
        level = logging.WARNING if turn.seconds >= _WARN_SECONDS else logging.INFO
        more = self._lines.take(logging.getLevelName(level))
        if more is not None:
            logger.log(
                level,
                "%s stood still for %.0f ms (%.0f ms of CPU) in %s%s; it was at: %s",
                self._name,
                turn.seconds * 1000,
                turn.cpu_seconds * 1000,
                turn.reason,
                more,
                " < ".join(reversed(turn.stack)) or "a call that let no other thread run",
            )
