"""Metrics of the connections of one listener and their authentication: Apache Kafka's socket-server-metrics.

Apache Kafka has them for each network processor of a listener; pykbroker has one processor, number 0. As in Apache
Kafka, the handshake authenticates an SSL connection, and a PLAINTEXT connection counts in none of the authentication
metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykbroker.metrics.registry import Counter, Metrics

_NAME: Final = "kafka.server:type=socket-server-metrics,name={},listener={},networkProcessor=0"


class ListenerMetrics:
    """Counters that the connections of a listener add to (Selector.SelectorMetrics)."""

    __slots__ = (
        "authenticated",
        "closed",
        "expired",
        "opened",
        "refused",
        "renewal_refused",
        "renewed",
        "without_renewal",
    )

    def __init__(self, metrics: Metrics, listener: str, connections: Callable[[], int]) -> None:
        """`connections` returns their present number."""

        def counter(name: str) -> Counter:
            return metrics.counter(_NAME.format(name, listener))

        metrics.gauge(_NAME.format("connection-count", listener), connections)
        self.opened = counter("connection-creation-total")
        self.closed = counter("connection-close-total")
        self.authenticated = counter("successful-authentication-total")
        self.refused = counter("failed-authentication-total")
        #: KIP-368: sessions that were renewed, sessions whose renewal was refused, and sessions that ended without a
        #: renewal
        self.renewed = counter("successful-reauthentication-total")
        self.renewal_refused = counter("failed-reauthentication-total")
        self.expired = counter("expired-connections-killed-count")
        #: connections whose session cannot be renewed: authenticated by TLS alone, or without version 1 of
        #: SaslAuthenticate
        self.without_renewal = counter("successful-authentication-no-reauth-total")
