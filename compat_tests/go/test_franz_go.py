"""franz-go, the Go client, from a small program that is built once per session."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import needs
from compat_tests.clients import Client
from compat_tests.remote import Program, RemoteClient
from compat_tests.suite import ClientSuite

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    go = needs.go(least=(1, 26))
    binary = needs.CACHE / "go" / "client"
    binary.parent.mkdir(parents=True, exist_ok=True)
    # Go's own build cache makes this instant when nothing changed.
    done = subprocess.run([go, "build", "-o", str(binary), "."], cwd=HERE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    program = Program([str(binary)], tmp_path_factory.mktemp("go") / "stderr.log")
    yield program
    program.close()


class TestFranzGo(ClientSuite):
    @pytest.fixture
    def client(self, go_program: Program) -> Client:
        return RemoteClient("franz-go", go_program)
