"""The configuration of a Prometheus server: the nodes to scrape, and alerting rules.

A node answers at its `pykbroker.metrics.listener`; metrics/exposition.py has the names of the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError, parse_host_port
from pykbroker.tools.manifests import checked

#: the usual port of jmx_exporter's agent, which other programs rarely use
PORT: Final = 9404
_MOST_PORT: Final = 65_535
_MOST_SECONDS: Final = 3_600

# A rule has a name, the time for which it must hold, an expression, and a summary. Only the active controller reports
# offline partitions and itself, so expressions about these use the sum over the cluster.
_RULES: Final = (
    (
        "KafkaPartitionsOffline",
        "1m",
        "sum by (job) (kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "{{ $value }} partitions have no leader: nothing can be produced to them or consumed from them.",
    ),
    (
        "KafkaNoActiveController",
        "1m",
        "sum by (job) (kafka_controller_kafkacontroller_activecontrollercount) != 1",
        "{{ $value }} nodes say that they are the active controller; it should be one.",
    ),
    (
        "KafkaUnderMinIsr",
        "1m",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "{{ $value }} partitions that {{ $labels.instance }} leads refuse producers with acks=all.",
    ),
    (
        "KafkaUnderReplicated",
        "5m",
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "{{ $value }} partitions that {{ $labels.instance }} leads have replicas that are not in sync.",
    ),
    (
        "KafkaLogDirectoryOffline",
        "0m",
        "kafka_log_logmanager_offlinelogdirectorycount > 0",
        "{{ $value }} log directories of {{ $labels.instance }} have failed.",
    ),
    ("KafkaNodeDown", "1m", 'up{job="%s"} == 0', "{{ $labels.instance }} does not answer."),
)


@dataclass(slots=True, frozen=True, kw_only=True)
class PrometheusConfig:
    """`targets`: host or host:port of each node's metrics listener; the port is 9404 if none is named. Raises
    ConfigError for a value that cannot be in the file."""

    targets: tuple[str, ...]
    job: str = "pykbroker"
    seconds: int = 15

    def __post_init__(self) -> None:
        if not self.targets:
            raise ConfigError("no node is named: give --target HOST:PORT for each")
        for target in self.addresses:
            found = parse_host_port(target)
            if found is None or not 1 <= found[1] <= _MOST_PORT:
                raise ConfigError(f"{target!r} is not a host and a port")
            checked.host(found[0])
        checked.name(self.job)
        if not 1 <= self.seconds <= _MOST_SECONDS:
            raise ConfigError(f"a scrape each {self.seconds} s: there are 1 to {_MOST_SECONDS}")

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(target if ":" in target else f"{target}:{PORT}" for target in self.targets)


def prometheus(config: PrometheusConfig) -> str:
    """Return the text of prometheus.yml."""
    targets = ", ".join(f'"{address}"' for address in config.addresses)
    return f"""# Each node has pykbroker.metrics.listener=HOST:PORT in its properties
# (KAFKA_PYKBROKER_METRICS_LISTENER in a container).
global:
  scrape_interval: {config.seconds}s
scrape_configs:
  - job_name: {config.job}
    static_configs:
      - targets: [{targets}]
"""


def rules(config: PrometheusConfig) -> str:
    """Return a file for Prometheus' `rule_files`."""
    alerts = "".join(
        f"""      - alert: {name}
        expr: '{expression.replace("%s", config.job)}'
        for: {duration}
        annotations:
          summary: '{summary}'
"""
        for name, duration, expression, summary in _RULES
    )
    return f"""groups:
  - name: {config.job}
    rules:
{alerts}"""
