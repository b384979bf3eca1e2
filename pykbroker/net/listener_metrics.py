"""Metrics of the connections of one listener and their authentication: Apache Kafka's socket-server-metrics.

Apache Kafka has them for each network processor of a listener; here there is one, number 0. As there, the handshake
authenticates a connection of SSL, and a connection of PLAINTEXT is in none of the numbers of authentication.
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
        #: KIP-368: sessions that were renewed, whose renewal was refused, and that ended without one
        self.renewed = counter("successful-reauthentication-total")
        self.renewal_refused = counter("failed-reauthentication-total")
        self.expired = counter("expired-connections-killed-count")
        #: authenticated in a way that cannot renew a session: by TLS alone, or without SaslAuthenticate 1
        self.without_renewal = counter("successful-authentication-no-reauth-total")
