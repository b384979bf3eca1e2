"""One node for the whole folder, and a well-behaved client next to every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.badinput.asking import Asker
from tests.badinput.watched import WatchedNode, watched_node

# A shorter wait than elsewhere for a request that does not arrive, and for a deleted file.
CONFIG = {
    "pykbroker.connection.request.receive.timeout.ms": "1500",
    "log.segment.delete.delay.ms": "50",
    "group.min.session.timeout.ms": "6000",
}


@pytest.fixture(scope="session")
def node() -> Iterator[WatchedNode]:
    with watched_node(CONFIG) as running:
        yield running


@pytest.fixture(scope="session")
def neighbour(node: WatchedNode) -> Iterator[Asker]:
    with Asker(node.port) as asker:
        yield asker


@pytest.fixture(autouse=True)
def _nobody_else_is_disturbed(node: WatchedNode, neighbour: Asker) -> Iterator[None]:
    """The same connection is served before and after each test, and no line of the log is an error."""
    neighbour.is_served()
    yield
    neighbour.is_served()
    assert not node.complaints(), "\n".join(node.complaints()[:50])
