"""pytest fixtures. `kafka_broker` is one node per session and per xdist worker, and `kafka_faults` has its fault rules.
`kafka_broker_secure` is a node with TLS and users, `kafka_cluster` has three nodes that a test may disturb, and
`kafka_topics` makes names that belong to one test.

Nothing of pykbroker is imported until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pykbroker.testing.cluster import Cluster
    from pykbroker.testing.embedded import Broker
    from pykbroker.testing.faults.rule_set import Faults
    from pykbroker.testing.secure_broker import SecureBroker


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line(
        "markers",
        "kafka_cluster(nodes=3, properties=None, node_properties=None): kafka_cluster is a cluster of this test's own, "
        "made with these arguments",
    )
    config.addinivalue_line(
        "markers",
        'kafka_broker_secure(users=("alice", "bob"), protocol="SASL_SSL", mechanism="SCRAM-SHA-512", acls=False, '
        "config=None): kafka_broker_secure is a broker of this test's own, made with these arguments",
    )


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A broker on a free port of localhost; pass `kafka_broker.bootstrap_servers` to any client."""
    from pykbroker.testing.embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_faults(kafka_broker: Broker) -> Iterator[Faults]:
    """The fault rules of `kafka_broker`. All rules are removed after each test that uses this fixture."""
    yield kafka_broker.faults
    kafka_broker.faults.clear()


@pytest.fixture(scope="session")
def _kafka_shared_secure() -> Iterator[SecureBroker]:
    from pykbroker.testing.secure_broker import SecureBroker

    with SecureBroker() as broker:
        yield broker


@pytest.fixture
def kafka_broker_secure(request: pytest.FixtureRequest) -> Iterator[SecureBroker]:
    """A broker whose clients must authenticate: SASL_SSL with SCRAM-SHA-512, and the users alice and bob.

    `kafka_broker_secure.kafka_python("alice")` returns settings of a client; `confluent`, `aiokafka` and `java` return
    settings of other clients. The session has one broker; with `@pytest.mark.kafka_broker_secure(protocol="SSL")` a
    test has its own broker.
    """
    marker = request.node.get_closest_marker("kafka_broker_secure")
    if marker is None:
        yield request.getfixturevalue("_kafka_shared_secure")
        return
    from pykbroker.testing.secure_broker import SecureBroker

    with SecureBroker(*marker.args, **marker.kwargs) as broker:
        yield broker


class _SharedCluster:
    """The session's cluster, made when a test first needs it, and made again after a test has left it broken."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        """Return a whole cluster: all nodes serve, no traffic is cut, every replica is in sync."""
        from pykbroker.testing.cluster import Cluster

        if self._cluster is not None:
            try:
                self._cluster.restore()
            except Exception:  # noqa: BLE001  # whatever a test has done to it: the next one gets another
                self.close()
        if self._cluster is None:
            self._cluster = Cluster().start()
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


@pytest.fixture(scope="session")
def _kafka_shared_cluster() -> Iterator[_SharedCluster]:
    shared = _SharedCluster()
    yield shared
    shared.close()


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes; a test may kill, stop and pause them and cut the network between them.

    The session has one cluster; before each test that uses it, the effects of other tests are undone. With
    `@pytest.mark.kafka_cluster(nodes=5, properties={...})` a test has its own cluster.
    """
    marker = request.node.get_closest_marker("kafka_cluster")
    if marker is None:
        shared: _SharedCluster = request.getfixturevalue("_kafka_shared_cluster")
        yield shared.get()
        return
    from pykbroker.testing.cluster import Cluster

    with Cluster(*marker.args, **marker.kwargs) as cluster:
        yield cluster


@pytest.fixture
def kafka_topics(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function: `kafka_topics("orders")` returns a topic name that no other test uses, neither in this run nor in
    another run on the same broker."""
    import re
    import uuid

    prefix = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:100]
    namespace = f"{prefix}-{uuid.uuid4().hex[:8]}"

    def topic(name: str) -> str:
        return f"{namespace}-{name}"

    return topic
