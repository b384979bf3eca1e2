"""Findings about the process that the operator would start: its variables and its limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pykbroker.runtime.descriptor_budget import divide
from pykbroker.tools.node_migration.findings import NodeFinding, ok, warn

#: Variables by which the scripts of Apache Kafka configure its JVM. Their values may have secrets and are not shown.
_OF_THE_JVM: Final = (
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_LOG4J_OPTS",
    "JMX_PORT",
    "JAVA_TOOL_OPTIONS",
)
_WHERE: Final = "the environment of the check"
#: Each partition has a few open files, and each client a connection.
_FEW_CONNECTIONS: Final = 4096


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    variables: Mapping[str, str] = field(repr=False)
    #: the hard limit of open files, to which the start raises its own
    most_files: int


def environment_findings(facts: ProcessFacts) -> Iterator[NodeFinding]:
    given = [name for name in _OF_THE_JVM if facts.variables.get(name)]
    agents = [name for name in given if "-javaagent" in facts.variables[name]]
    if given:
        more = f"; {', '.join(agents)} loads a Java agent" if agents else ""
        yield warn(
            f"Variables of the JVM are set, and have no effect but for a JAAS file in KAFKA_OPTS: {', '.join(given)}"
            + more,
            _WHERE,
            "What an agent or JMX gave comes from pykbroker.metrics.listener instead",
        )
    budget = divide(facts.most_files)
    if budget.connections < _FEW_CONNECTIONS:
        yield warn(
            f"The limit of open files is {facts.most_files}: {budget.files} files of logs stay open, and "
            f"{budget.connections} connections are taken",
            _WHERE,
            "Raise it (ulimit -n, LimitNOFILE= of a unit) to that of Apache Kafka",
        )
    elif not given:
        yield ok("No variable of the JVM is set, and the limit of open files is enough", _WHERE)
