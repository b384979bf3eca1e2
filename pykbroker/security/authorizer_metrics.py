"""Apache Kafka's metrics of StandardAuthorizer (KIP-877), for each half of a node: the number of ACLs, and the
decisions per minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykbroker.metrics.recent import RecentRate, SampleWindows
from pykbroker.metrics.registry import Metrics
from pykbroker.security.standard_authorizer import StandardAuthorizer


def register(
    metrics: Metrics,
    authorizer: StandardAuthorizer,
    roles: Iterable[str],
    now_s: Callable[[], float],
    windows: SampleWindows,
) -> None:
    """Register the metrics of an authorizer. `roles`: the roles of the half, or halves, that use this authorizer."""

    def per_minute(read: Callable[[], int]) -> RecentRate:
        return RecentRate(read, now_s, unit_s=60.0, windows=windows)

    gauges: dict[str, Callable[[], float]] = {
        "acls-total-count": lambda: authorizer.acl_count,
        "authorization-request-rate-per-minute": per_minute(lambda: authorizer.allowed + authorizer.denied),
        "authorization-allowed-rate-per-minute": per_minute(lambda: authorizer.allowed),
        "authorization-denied-rate-per-minute": per_minute(lambda: authorizer.denied),
    }
    for role in sorted(roles):
        for name, read in gauges.items():
            where = f"config=authorizer.class.name,class=StandardAuthorizer,role={role}"
            metrics.gauge(f"kafka.server:type=plugins,{where},name={name}", read)
