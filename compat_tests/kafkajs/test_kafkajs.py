"""KafkaJS, the JavaScript client: its groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.built import npm_packages
from compat_tests.groups import GroupSuite, Spawn, spawner
from compat_tests.remote import Program, RemoteClient
from testkit import needs
from testkit.clients import Client

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def command() -> list[str]:
    node = needs.program("node")
    # The program is run from here, its packages are in the cache.
    return [
        "env",
        f"NODE_PATH={npm_packages(HERE)}",
        "KAFKAJS_NO_PARTITIONER_WARNING=1",
        node,
        os.fspath(HERE / "client.js"),
    ]


@pytest.fixture(scope="module")
def program(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program(command, tmp_path_factory.mktemp("kafkajs") / "stderr.log")
    yield made
    made.close()


class TestKafkaJS(GroupSuite):
    @pytest.fixture
    def client(self, program: Program) -> Client:
        return RemoteClient("kafkajs", program)

    @pytest.fixture
    def spawn(self, command: list[str], tmp_path: Path) -> Iterator[Spawn]:
        yield from spawner("kafkajs", command, tmp_path)
