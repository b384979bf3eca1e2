"""Apache Kafka's command-line tools, run one after another in one JVM: a tenth of a second each instead of one or two.

A tool that waits for its JVM to end, or that is ended by a signal, needs a JVM of its own: `run_tool` in kafka.py.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from compat_tests.built import java_classes
from compat_tests.remote import Program, to_wire
from testkit.oracle.kafka import KAFKA, TOOL_JVM, java_command


class Ended(NamedTuple):
    """The status of a tool, and its output."""

    status: int
    out: str
    err: str


class ToolServer:
    """`with ToolServer() as tools: tools.run("org.apache.kafka.tools.TopicCommand", ["--list", ...])`."""

    def __init__(self, version: str = KAFKA) -> None:
        self._version = version
        self._home = tempfile.TemporaryDirectory(prefix="tools-")
        self._program: Program | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end()
        self._home.cleanup()

    def run(self, main: str, words: Sequence[str], stdin: str | None = None) -> Ended:
        """Run the main class of a tool to its end."""
        if self._program is None:
            self._program = self._start()
        given = to_wire(None if stdin is None else stdin.encode())
        try:
            found = self._program.ask("run", main=main, args=list(words), stdin=given)
        except BaseException:
            # The tool may still run, or has ended the JVM. The next one gets another JVM.
            self._end()
            raise
        return Ended(found["status"], found["out"], found["err"])

    def _start(self) -> Program:
        classes = java_classes(Path(__file__).with_name("ToolServer.java"), version=self._version)
        # Kafka's shell leaves a folder there.
        own = f"-Djava.io.tmpdir={self._home.name}"
        command = java_command("ToolServer", jvm=(*TOOL_JVM, own), extra_classpath=classes, version=self._version)
        return Program(command, Path(self._home.name) / "log")

    def _end(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close()


@cache
def shared(version: str = KAFKA) -> ToolServer:
    """Return the one of this process, which ends with it."""
    server = ToolServer(version)
    atexit.register(server.close)
    return server


def run_shared(
    main: str, words: Sequence[str], *, stdin: str | None = None, check: bool = True, version: str = KAFKA
) -> Ended:
    """Run a tool in the JVM of this process. With `check`, a failing tool fails the test."""
    ended = shared(version).run(main, words, stdin)
    if check and ended.status != 0:
        name = main.rpartition(".")[2]
        raise AssertionError(f"{name} {' '.join(words)} ended with {ended.status}\n{ended.out}\n{ended.err}")
    return ended
