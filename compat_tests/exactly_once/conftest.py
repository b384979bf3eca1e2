"""A broker for tests that kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.node import Node, make_killable_node

# A killed member is removed after two seconds, in both group protocols, and an expired transaction ends soon.
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture
def killable(against: str) -> Iterator[Node]:
    """A running node for one test, on a port that it keeps."""
    node = make_killable_node(against, QUICK)
    try:
        yield node.start()
    finally:
        node.close()
