"""The command line, with the node under test and with Apache Kafka: each test runs against both."""

from __future__ import annotations

import uuid

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.node import Node


@pytest.fixture(scope="session", params=["broker", "apache_kafka"])
def line(request: pytest.FixtureRequest) -> CommandLine:
    node: Node = request.getfixturevalue(request.param)
    return CommandLine(node.bootstrap)


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test has."""
    return f"c{uuid.uuid4().hex[:10]}"
