"""Both kinds of tools, run against the node under test."""

from __future__ import annotations

import pytest

from compat_tests.node import Node
from compat_tests.our_tools.both import COUNT, BothTools
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.tool_server import ToolServer, shared
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record
from testkit.oracle.kafka import kafka_libs


@pytest.fixture(scope="session")
def tool_server() -> ToolServer:
    kafka_libs()
    return shared()


@pytest.fixture(scope="session")
def both(broker: Node, tool_server: ToolServer) -> BothTools:
    return BothTools(broker.bootstrap, tool_server)


@pytest.fixture(scope="module")
def filled(both: BothTools, topics: Topics) -> str:
    """A topic of two partitions with `COUNT` records each, a second apart."""
    topic = topics.create(partitions=2)
    records = [Record(None, b"%d" % i, (), NOW_MS + 1000 * i, i % 2) for i in range(2 * COUNT)]
    ConfluentClient().produce(both.bootstrap, topic, records)
    return topic
