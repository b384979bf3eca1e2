"""kafka-python: the client written in Python alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.groups import Spawn
from compat_tests.python.kafka_python_client import KafkaPythonClient
from compat_tests.python.served import python_spawner
from compat_tests.suite import ClientSuite
from testkit.clients import Client


class TestKafkaPython(ClientSuite):
    @pytest.fixture
    def client(self) -> Client:
        return KafkaPythonClient()

    @pytest.fixture
    def spawn(self, tmp_path: Path) -> Iterator[Spawn]:
        yield from python_spawner("kafka-python", tmp_path)
