"""sarama, the other Go client: its groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.built import go_program
from compat_tests.groups import GroupSuite, Spawn, spawner
from compat_tests.remote import Program, RemoteClient
from testkit.clients import Client

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def command() -> list[str]:
    return [str(go_program(HERE))]


@pytest.fixture(scope="module")
def program(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program(command, tmp_path_factory.mktemp("sarama") / "stderr.log")
    yield made
    made.close()


class TestSarama(GroupSuite):
    @pytest.fixture
    def client(self, program: Program) -> Client:
        return RemoteClient("sarama", program)

    @pytest.fixture
    def spawn(self, command: list[str], tmp_path: Path) -> Iterator[Spawn]:
        yield from spawner("sarama", command, tmp_path)
