"""Requests to a cluster in which a node is silent, or has died a moment ago."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pykbroker.testing import Cluster
from pykbroker.tools.cluster import groups, reassignments
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterSettings
from pykbroker.tools.cluster.failure import NoAnswer

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
    with AskedCluster(ClusterSettings(tuple(bootstrap.split(",")))) as asked:
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


def test_the_first_contact_may_be_silent(cluster: Cluster) -> None:
    """As a process that was stopped by a signal: the system takes the connection, and nothing answers."""
    cluster.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for patient in (True, False):
            settings = ClusterSettings((address, cluster.address(1)), request_timeout_ms=2000, patient=patient)
            with AskedCluster(settings) as asked:
                assert 1 in [node.id for node in asked.nodes()]
        alone = ClusterSettings((address,), request_timeout_ms=100, patient=False)
        with AskedCluster(alone) as asked, pytest.raises(NoAnswer, match="does not answer: no answer within 100 ms"):
            asked.nodes()


def test_a_broker_that_has_died_is_left_out_of_a_list_of_groups(cluster: Cluster, asked: AskedCluster) -> None:
    """The list is complete without it: its partitions have other leaders, and so its groups other coordinators."""
    cluster.kill(3)
    assert groups.listed(asked) == []


def test_a_group_has_another_coordinator_when_its_own_has_died(cluster: Cluster, asked: AskedCluster) -> None:
    (died,) = asked.coordinators(["g"]).values()
    cluster.kill(died)
    assert groups.committed(asked, "g") == {}
    (now,) = asked.coordinators(["g"]).values()
    assert now != died
