"""The node under test, shared by the whole session, and fixtures for tests.

pytest compat_tests                            against pykbroker
pytest compat_tests --against apache-kafka     the same tests against Apache Kafka, which judges the tests
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from compat_tests.flaky import FlakyProxy
from compat_tests.node import Node, make_node
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from testkit import skips, timing
from testkit.dealing import ByUnit, arrange
from testkit.oracle import kafka
from testkit.oracle.kafka import ApacheKafka, kafka_libs
from testkit.ports import steady_port

if TYPE_CHECKING:
    from xdist.remote import Producer

FreshBroker = Callable[..., Node]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        choices=["pykbroker", "apache-kafka"],
        default=os.environ.get("PYKBROKER_COMPAT_AGAINST", "pykbroker"),
        help="the broker under test (also PYKBROKER_COMPAT_AGAINST)",
    )


def pytest_configure(config: pytest.Config) -> None:
    timing.register(config)
    skips.register(config)
    kafka.format_tool = run_shared
    # The node under test overwrites received bytes after each request (pykbroker/net/connection.py).
    os.environ["PYKBROKER_POISON_RECEIVED"] = "1"
    # And each part of it refuses calls from the thread of the other loop (pykbroker/node/owner_check.py).
    os.environ["PYKBROKER_CHECK_OWNERS"] = "1"


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByUnit:
    return ByUnit(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    arrange(items)


def pytest_report_header(config: pytest.Config) -> str:
    return f"broker under test: {config.getoption('--against')}"


@pytest.fixture(scope="session")
def against(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--against"))


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka itself, for tests that compare with it."""
    kafka_libs()
    with ApacheKafka() as kafka:
        yield kafka


@pytest.fixture(scope="session")
def broker(against: str, request: pytest.FixtureRequest) -> Iterator[Node]:
    """The node under test with its default configuration, for every test that does not change it."""
    if against == "apache-kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    node = make_node(against)
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture
def fresh_broker(against: str) -> Iterator[FreshBroker]:
    """`fresh_broker({"key": "value"}, port=…)` returns a node of its own for a test that restarts, kills or configures
    it."""
    made: list[Node] = []

    def make(config: Mapping[str, str] | None = None, *, port: int | None = None) -> Node:
        node = make_node(against, config, port=port)
        made.append(node)
        return node.start()

    yield make
    for node in made:
        node.close()


@pytest.fixture(scope="session")
def quick_groups(against: str) -> Iterator[Node]:
    """A node on which members may have very short session timeouts, for members that are killed."""
    node = make_node(against, {"group.min.session.timeout.ms": "500"})
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture(scope="session")
def topics(broker: Node) -> Topics:
    """`topics.create(partitions=…, config=…)` creates a topic with a new name on the shared node."""
    return Topics(broker.bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A fresh topic with one partition."""
    return topics.create()


@pytest.fixture(scope="session")
def flaky(against: str) -> Iterator[FlakyProxy]:
    """A node of its own with a proxy that can lose answers; clients connect to `localhost:{flaky.port}`."""
    port = steady_port()
    proxy = FlakyProxy(port)
    node = make_node(against, {"advertised.listeners": f"PLAINTEXT://localhost:{proxy.port}"}, port=port)
    try:
        node.start()
        yield proxy
    finally:
        proxy.close()
        node.close()


@pytest.fixture(scope="session")
def thousand_partitions(topics: Topics) -> str:
    """One shared topic with 1,000 partitions; each client writes its own keys into it."""
    return topics.create(partitions=1000, name=f"{topics.name()}-thousand")
