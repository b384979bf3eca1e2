"""A node whose consumer groups are quick, and the programs of the clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.consumer_groups.clients import Party, Programs
from compat_tests.node import Node, make_node
from compat_tests.topics import Topics

#: Members get changes at their next heartbeat, and are removed after a few missed heartbeats.
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": "1000",
}


@pytest.fixture(scope="session")
def quick(against: str) -> Iterator[Node]:
    node = make_node(against, QUICK)
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture(scope="session")
def quick_topics(quick: Node) -> Topics:
    return Topics(quick.bootstrap)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("programs"))
    yield programs
    programs.close()


@pytest.fixture
def party(programs: Programs, quick: Node) -> Iterator[Party]:
    party = Party(programs, quick.bootstrap)
    yield party
    party.close()
