"""Apache Kafka's metrics of StandardAuthorizer (KIP-877), for each half of a node: the number of ACLs, and the
decisions per minute.

A rate covers the time since an earlier reading: the newest that is at least a minute old, or the oldest if all are
younger than a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from pykbroker.metrics.registry import Metrics
from pykbroker.security.standard_authorizer import StandardAuthorizer

_WINDOW_S = 60.0


class RatePerMinute:
    """The rate per minute at which a number grows. `now_s` is a clock in seconds."""

    def __init__(self, read: Callable[[], int], now_s: Callable[[], float]) -> None:
        self._read = read
        self._now_s = now_s
        self._readings = deque([(now_s(), read())])

    def __call__(self) -> float:
        now_s, total = self._now_s(), self._read()
        readings = self._readings
        readings.append((now_s, total))
        while len(readings) > 2 and readings[1][0] <= now_s - _WINDOW_S:
            readings.popleft()
        since_s, before = readings[0]
        return (total - before) * 60 / (now_s - since_s) if now_s > since_s else 0.0


def register(
    metrics: Metrics, authorizer: StandardAuthorizer, roles: Iterable[str], now_s: Callable[[], float]
) -> None:
    """Register the metrics of an authorizer. `roles`: the roles of the half, or halves, that use this authorizer."""
    gauges: dict[str, Callable[[], float]] = {
        "acls-total-count": lambda: authorizer.acl_count,
        "authorization-request-rate-per-minute": RatePerMinute(lambda: authorizer.allowed + authorizer.denied, now_s),
        "authorization-allowed-rate-per-minute": RatePerMinute(lambda: authorizer.allowed, now_s),
        "authorization-denied-rate-per-minute": RatePerMinute(lambda: authorizer.denied, now_s),
    }
    for role in sorted(roles):
        for name, read in gauges.items():
            where = f"config=authorizer.class.name,class=StandardAuthorizer,role={role}"
            metrics.gauge(f"kafka.server:type=plugins,{where},name={name}", read)
