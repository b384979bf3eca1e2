"""Apache Kafka's Java client, from a program that is compiled at test time."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import needs
from compat_tests.clients import Client
from compat_tests.oracle.kafka import TOOL_JVM, java_command, kafka_libs
from compat_tests.remote import Program, RemoteClient
from compat_tests.suite import ClientSuite

SOURCE = Path(__file__).with_name("ClientProgram.java")


def compiled() -> Path:
    """The folder with the program's classes; compiled again only when the source changes."""
    folder = needs.CACHE / "java" / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    if not (folder / "ClientProgram.class").exists():
        javac = needs.program("javac")
        command = [
            javac,
            "-Xlint:all,-try,-processing",
            "-Werror",
            "-cp",
            f"{kafka_libs()}/*",
            "-d",
            str(folder),
            str(SOURCE),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    jvm = ["-Xmx512m", *(option for option in TOOL_JVM if not option.startswith("-Xmx"))]
    command = java_command("ClientProgram", jvm=jvm, extra_classpath=[compiled()])
    program = Program(command, tmp_path_factory.mktemp("java") / "stderr.log")
    yield program
    program.close()


class TestJavaClient(ClientSuite):
    @pytest.fixture
    def client(self, java_program: Program) -> Client:
        return RemoteClient("java", java_program)
