"""Apache Kafka's Java client, in a program that is compiled at test time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.built import java_classes
from compat_tests.groups import Spawn, spawner
from compat_tests.remote import Program, RemoteClient
from compat_tests.suite import ClientSuite
from testkit.clients import Client
from testkit.oracle.kafka import TOOL_JVM, java_command

SOURCE = Path(__file__).with_name("ClientProgram.java")


@pytest.fixture(scope="session")
def command() -> list[str]:
    jvm = ["-Xmx512m", *(option for option in TOOL_JVM if not option.startswith("-Xmx"))]
    return java_command("ClientProgram", jvm=jvm, extra_classpath=java_classes(SOURCE))


@pytest.fixture(scope="session")
def java_program(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(command, tmp_path_factory.mktemp("java") / "stderr.log")
    yield program
    program.close()


class TestJavaClient(ClientSuite):
    @pytest.fixture
    def client(self, java_program: Program) -> Client:
        return RemoteClient("java", java_program)

    @pytest.fixture
    def spawn(self, command: list[str], tmp_path: Path) -> Iterator[Spawn]:
        yield from spawner("java", command, tmp_path)
