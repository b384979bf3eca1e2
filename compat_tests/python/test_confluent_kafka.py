"""confluent-kafka: librdkafka from Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.groups import Spawn
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.python.served import python_spawner
from compat_tests.suite import ClientSuite
from testkit.clients import Client


class TestConfluentKafka(ClientSuite):
    @pytest.fixture
    def client(self) -> Client:
        return ConfluentClient()

    @pytest.fixture
    def other(self) -> Client:
        from compat_tests.python.kafka_python_client import KafkaPythonClient

        return KafkaPythonClient()

    @pytest.fixture
    def spawn(self, tmp_path: Path) -> Iterator[Spawn]:
        yield from python_spawner("confluent-kafka", tmp_path)
