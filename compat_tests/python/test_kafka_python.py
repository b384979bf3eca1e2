"""kafka-python: the client written in Python alone."""

from __future__ import annotations

import pytest

from compat_tests.clients import Client
from compat_tests.python.kafka_python_client import KafkaPythonClient
from compat_tests.suite import ClientSuite


class TestKafkaPython(ClientSuite):
    @pytest.fixture
    def client(self) -> Client:
        return KafkaPythonClient()
