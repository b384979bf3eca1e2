"""aiokafka: the asyncio client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.groups import Spawn
from compat_tests.python.aiokafka_client import AiokafkaClient, LoopThread
from compat_tests.python.served import python_spawner
from compat_tests.suite import ClientSuite
from testkit.clients import Client


@pytest.fixture(scope="module")
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


class TestAiokafka(ClientSuite):
    @pytest.fixture
    def client(self, loop_thread: LoopThread) -> Client:
        return AiokafkaClient(loop_thread)

    @pytest.fixture
    def spawn(self, tmp_path: Path) -> Iterator[Spawn]:
        yield from python_spawner("aiokafka", tmp_path)
