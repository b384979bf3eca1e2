"""Both kinds of tools, run against the node under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.node import Node
from compat_tests.our_tools.both import BothTools
from compat_tests.tool_server import ToolServer
from testkit.oracle.kafka import kafka_libs


@pytest.fixture(scope="session")
def tool_server() -> Iterator[ToolServer]:
    kafka_libs()
    with ToolServer() as server:
        yield server


@pytest.fixture(scope="session")
def both(broker: Node, tool_server: ToolServer) -> BothTools:
    return BothTools(broker.bootstrap, tool_server)
