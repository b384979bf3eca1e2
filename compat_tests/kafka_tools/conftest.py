"""Apache Kafka's command-line tools, run against the node under test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compat_tests.node import Node
from compat_tests.tool_server import run_shared
from testkit.oracle.kafka import kafka_libs, run_tool

TOOLS = "org.apache.kafka.tools"


class Tools:
    """`tools.run("TopicCommand", "--list")` returns the tool's standard output."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, main: str, *args: str, stdin: str | None = None) -> str:
        return run_shared(*self._command(main, args), stdin=stdin).out

    def alone(self, main: str, *args: str) -> str:
        """Run a tool that prints more while its JVM ends."""
        return run_tool(*self._command(main, args), timeout=90).stdout

    def fail(self, main: str, *args: str) -> str:
        """Run a tool that must fail; returns its whole output."""
        done = run_shared(*self._command(main, args), check=False)
        assert done.status != 0, f"{main} {args} did not fail:\n{done.out}"
        return done.out + done.err

    def _command(self, main: str, args: Sequence[str]) -> tuple[str, list[str]]:
        where = ["--bootstrap-server", self.bootstrap]
        # This tool alone wants its verb first; the others with a verb want it last.
        ordered = [*args, *where] if main == "ClusterTool" else [*where, *args]
        return main if main.startswith("kafka.") else f"{TOOLS}.{main}", ordered


@pytest.fixture(scope="session")
def tools(broker: Node) -> Tools:
    kafka_libs()
    return Tools(broker.bootstrap)


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a printed table whose first line names the columns; no cell may be empty."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]
