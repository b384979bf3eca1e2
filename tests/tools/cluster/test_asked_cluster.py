"""Requests to a cluster in which a node has died a moment ago."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykbroker.testing import Cluster
from pykbroker.tools.cluster import reassignments
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[AskedCluster]:
    """A cluster that is reached through broker 3 first, which a test may kill."""
    cluster.start()
    cluster.wait_until_in_sync()
    bootstrap = ",".join(cluster.address(number) for number in (3, 1))
    with AskedCluster(ClusterSettings(bootstrap)) as asked:
        assert [node.id for node in asked.nodes()] == [1, 2, 3]
        yield asked


def test_a_question_for_the_controller_goes_to_another_where_the_named_broker_is_gone(
    cluster: Cluster, asked: AskedCluster
) -> None:
    asked._controller_id = 3  # brokers name any node as the controller
    cluster.kill(3)
    assert reassignments.ongoing(asked) == {}


def test_the_first_contact_may_be_gone_by_the_next_question(cluster: Cluster, asked: AskedCluster) -> None:
    cluster.kill(3)
    asked.refresh()
    assert {node.id for node in asked.nodes()} >= {1, 2}
