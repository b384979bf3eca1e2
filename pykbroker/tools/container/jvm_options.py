"""Finds Java agents in the JVM options of a container's variables. No agent runs, because there is no JVM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Variables from which the scripts of images, or Java itself, take options. kafka-server-start reads EXTRA_ARGS.
_VARIABLES: Final = (
    "EXTRA_ARGS",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "KAFKA_EXTRA_ARGS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "_JAVA_OPTIONS",
)
_AGENT: Final = re.compile(r"-(?:javaagent|agentlib|agentpath):([^\s=\"']+)(?:=([^\s\"']*))?")
_PROMETHEUS: Final = "jmx_prometheus"
#: The agent's argument begins with [HOST:]PORT.
_PORT: Final = re.compile(r"(?:[^:]*:)??(\d+)(?::|$)")


def agents_line(variables: Mapping[str, str]) -> str | None:
    """Return the warning about agents, or None if there are none. It leaves out the arguments of agents, which may
    contain secrets."""
    found = [
        (variable, path.rpartition("/")[2], argument)
        for variable in _VARIABLES
        for path, argument in _AGENT.findall(variables.get(variable, ""))
    ]
    if not found:
        return None
    named = ", ".join(dict.fromkeys(f"{agent} of {variable}" for variable, agent, _ in found))
    line = f"There is no JVM here, and no agent runs: {named}"
    for _, agent, argument in found:
        if agent.startswith(_PROMETHEUS):
            port = _PORT.match(argument)
            address = f"0.0.0.0:{port[1] if port else 9404}"
            return f"{line}. KAFKA_PYKBROKER_METRICS_LISTENER={address} serves Apache Kafka's metrics for Prometheus"
    return line
