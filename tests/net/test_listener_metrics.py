"""Apache Kafka's names for the metrics of a listener."""

from __future__ import annotations

from pykbroker.metrics.registry import Metrics
from pykbroker.net.listener_metrics import ListenerMetrics


def test_the_names_are_apache_kafkas() -> None:
    metrics = Metrics()
    ListenerMetrics(metrics, "SASL_SSL", lambda: 3).authenticated.value += 2
    names = {name: value for name, value in metrics.snapshot().items() if value}
    of_listener = "listener=SASL_SSL,networkProcessor=0"
    assert names == {
        f"kafka.server:type=socket-server-metrics,name=connection-count,{of_listener}": 3,
        f"kafka.server:type=socket-server-metrics,name=successful-authentication-total,{of_listener}": 2,
    }
    attributes = sorted(name.split("name=")[1].split(",")[0] for name in metrics.snapshot())
    assert attributes == [
        "connection-close-total",
        "connection-count",
        "connection-creation-total",
        "expired-connections-killed-count",
        "failed-authentication-total",
        "failed-reauthentication-total",
        "successful-authentication-no-reauth-total",
        "successful-authentication-total",
        "successful-reauthentication-total",
    ]
