"""franz-go, the Go client, in a small program that is built once per session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.built import go_program
from compat_tests.groups import Spawn, spawner
from compat_tests.remote import Program, RemoteClient
from compat_tests.suite import ClientSuite
from testkit.clients import Client

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def command() -> list[str]:
    return [str(go_program(HERE))]


@pytest.fixture(scope="session")
def franz_go(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(command, tmp_path_factory.mktemp("go") / "stderr.log")
    yield program
    program.close()


class TestFranzGo(ClientSuite):
    @pytest.fixture
    def client(self, franz_go: Program) -> Client:
        return RemoteClient("franz-go", franz_go)

    @pytest.fixture
    def spawn(self, command: list[str], tmp_path: Path) -> Iterator[Spawn]:
        yield from spawner("franz-go", command, tmp_path)
