"""Java agents in variables: the one line that names them, and the replacement for their metrics."""

from __future__ import annotations

import pytest

from pykbroker.tools.container.jvm_options import agents_line
from pykbroker.tools.container.server_properties import server_properties
from testkit.image_environments import DEFAULTS

PROMETHEUS = "KAFKA_PYKBROKER_METRICS_LISTENER=0.0.0.0:{} serves Apache Kafka's metrics for Prometheus"


@pytest.mark.parametrize("variable", ["KAFKA_OPTS", "EXTRA_ARGS", "JAVA_TOOL_OPTIONS"])
def test_an_agent_is_named_without_its_arguments(variable: str) -> None:
    text = "-Xmx1g -javaagent:/opt/agents/tracing.jar=token=secret -Dx=y"
    assert agents_line({variable: text}) == f"There is no JVM here, and no agent runs: tracing.jar of {variable}"


@pytest.mark.parametrize(
    ("argument", "port"),
    [
        ("7071:/etc/config.yml", 7071),
        ("0.0.0.0:7072:/etc/config.yml", 7072),
        ("7073", 7073),
        ("/etc/config.yml", 9404),
        ("", 9404),
    ],
)
def test_the_exporter_of_prometheus_has_its_place_here(argument: str, port: int) -> None:
    line = agents_line({"KAFKA_OPTS": f'"-javaagent:/usr/app/jmx_prometheus_javaagent-1.0.1.jar={argument}"'})
    assert line is not None
    assert line.endswith(PROMETHEUS.format(port))


def test_other_options_are_no_agents() -> None:
    options = "-Djava.security.auth.login.config=/etc/kafka/jaas.conf -Xmx256M"
    assert agents_line({"KAFKA_OPTS": options, "KAFKA_BROKER_RACK": "-javaagent:x.jar"}) is None


def test_the_line_is_a_warning_of_the_start() -> None:
    variables = {"KAFKA_OPTS": "-javaagent:/x/tracing.jar"}
    (warning,) = server_properties(variables, mounted=None, defaults=DEFAULTS).warnings
    assert "tracing.jar of KAFKA_OPTS" in warning
