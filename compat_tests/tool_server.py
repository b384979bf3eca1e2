"""Apache Kafka's command-line tools, run one after another in one JVM: a tenth of a second each instead of one or two.

A tool that waits for its JVM to end, or that is ended by a signal, needs a JVM of its own: `run_tool` in kafka.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from compat_tests.built import java_classes
from compat_tests.remote import Program
from testkit.oracle.kafka import KAFKA, TOOL_JVM, java_command


class Ended(NamedTuple):
    """The status of a tool, and its output."""

    status: int
    out: str
    err: str


class ToolServer:
    """`with ToolServer() as tools: tools.run("org.apache.kafka.tools.TopicCommand", ["--list", ...])`."""

    def __init__(self, version: str = KAFKA) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="tools-")
        classes = java_classes(Path(__file__).with_name("ToolServer.java"), version=version)
        # Kafka's shell leaves a folder there.
        own = f"-Djava.io.tmpdir={self._home.name}"
        command = java_command("ToolServer", jvm=(*TOOL_JVM, own), extra_classpath=classes, version=version)
        self._program = Program(command, Path(self._home.name) / "log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.close()
        self._home.cleanup()

    def run(self, main: str, words: Sequence[str]) -> Ended:
        """Run the main class of a tool to its end."""
        found = self._program.ask("run", main=main, args=list(words))
        return Ended(found["status"], found["out"], found["err"])
