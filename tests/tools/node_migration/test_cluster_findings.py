"""Findings about the live cluster, from facts; and from a cluster of three nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pykbroker.metadata.features import METADATA_VERSION
from pykbroker.tools.cluster import groups
from pykbroker.tools.cluster.asked_cluster import AskedCluster, ClusterNode, ClusterSettings
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.groups import GroupListing
from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica
from pykbroker.tools.cluster.topics import DescribedPartition
from pykbroker.tools.node_migration.cluster_facts import ClusterFacts, read_cluster
from pykbroker.tools.node_migration.cluster_findings import NodeIdentity, cluster_findings
from tests.tools.node_migration.nodes_to_check import stops, warnings

NOW_MS = 1_000_000
VOTERS = {number: (f"host{number}", 9093) for number in (1, 2, 3)}
NODE = NodeIdentity(1, is_broker=True, is_controller=True, cluster_id="one", directory_id="d1", voters=VOTERS)


def voter(number: int, caught_up_ms: int = NOW_MS, directory: str | None = None) -> QuorumReplica:
    return QuorumReplica(number, directory, 100, NOW_MS, caught_up_ms, (f"CONTROLLER://host{number}:9093",))


def partition(number: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> DescribedPartition:
    return DescribedPartition(number, isr[0] if isr else -1, replicas, isr, (), ())


def healthy(**changes: Any) -> ClusterFacts:
    facts = ClusterFacts(
        "one",
        tuple(ClusterNode(number, f"host{number}", 9092) for number in (1, 2, 3)),
        {METADATA_VERSION: 30},
        DescribedQuorum(2, 7, 100, (voter(1), voter(2), voter(3)), ()),
        0,
        {("orders", 0): partition(0, (1, 2, 3), (1, 2, 3)), ("orders", 1): partition(1, (2, 3, 1), (3, 2, 1))},
        min_isr={"orders": 2},
    )
    return replace(facts, **changes)


def test_a_healthy_cluster_is_fine() -> None:
    assert [(each.level.value, each.what) for each in cluster_findings(healthy(), NODE)] == [
        ("ok", "The cluster can do without this node for a moment")
    ]


def test_a_node_of_another_cluster_gets_that_line_alone() -> None:
    found = cluster_findings(healthy(id="two", moving=(("orders", 0),)), NODE)
    assert [each.what for each in found] == ["The directories belong to cluster one, and the bootstrap server to two"]
    assert stops(found)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"levels": {METADATA_VERSION: 34}}, "The cluster has finalised a newer feature: metadata.version is at level"),
        ({"moving": (("orders", 1), ("a", 0))}, "A reassignment runs: a-0, orders-1"),
        (
            {"partitions": {("orders", 0): partition(0, (1, 2, 3), (1, 2))}},
            "1 under-replicated partition: orders-0; not in sync: 3",
        ),
        ({"partitions": {("orders", 0): partition(0, (2, 3), ())}}, "1 under-replicated partition: orders-0; not"),
        (
            {"partitions": {("orders", 0): partition(0, (1, 2, 3), (2, 3))}},
            "1 under-replicated partition, for lack of this node: orders-0",
        ),
        ({"tiered": ("cold",)}, "1 topic with tiered storage: cold"),
        (
            {"quorum": DescribedQuorum(2, 7, 100, (voter(1), voter(2), voter(4)), ())},
            "controller.quorum.voters names 1, 2, 3, and the quorum has 1, 2, 4",
        ),
        (
            {"quorum": DescribedQuorum(2, 7, 100, (voter(1), voter(2), voter(3, NOW_MS - 60_000)), ())},
            "1 other voter did not keep up with the quorum: 3",
        ),
        (
            {"quorum": DescribedQuorum(2, 7, 100, (voter(1, directory="d9"), voter(2), voter(3)), ())},
            "The quorum has voter 1 with directory.id d9, and here is d1",
        ),
    ],
)
def test_what_stops_a_move(changes: dict[str, Any], line: str) -> None:
    (said,) = stops(cluster_findings(healthy(**changes), NODE))
    assert said.startswith(line)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"groups": (GroupListing("app", "Streams", "streams", "Stable"),)}, "1 group of the streams protocol"),
        ({"partitions": {("logs", 0): partition(0, (1,), (1,))}}, "1 partition only on this node: logs-0"),
        ({"min_isr": {"orders": 3}}, "min.insync.replicas leaves no replica to spare: orders"),
        ({"overdue": ("tx-1",)}, "1 transaction open for longer than the timeout: tx-1"),
        ({"more_open": 7}, "7 further open transactions not looked at"),
        ({"clock_ahead_ms": 61_000}, "The clock of this machine is 61.0 s ahead of the active controller's"),
        ({"clock_ahead_ms": -6_000}, "The clock of this machine is 6.0 s behind the active controller's"),
        ({"unanswered": [("the groups", "denied")]}, "The cluster gave no answer about the groups: denied"),
        ({"brokers": (ClusterNode(2, "host2", 9092),)}, "The cluster has no broker 1"),
        ({"levels": {"kraft.version": 1}}, "controller.quorum.voters is set, and the voters of this quorum are in"),
        (
            {"quorum": DescribedQuorum(2, 7, 100, (voter(1), replace(voter(2), endpoints=("C://h:1",)), voter(3)), ())},
            "controller.quorum.voters has voter 2 at host2:9093, and the quorum at h:1",
        ),
    ],
)
def test_what_an_operator_should_know(changes: dict[str, Any], line: str) -> None:
    found = cluster_findings(healthy(**changes), NODE)
    assert not stops(found)
    assert any(each.startswith(line) for each in warnings(found)), found


@pytest.mark.parametrize("kind", ["Classic", "Consumer", "Share"])
def test_groups_that_are_served_are_no_finding(kind: str) -> None:
    assert not warnings(cluster_findings(healthy(groups=(GroupListing("g", kind, "", "Stable"),)), NODE))


def test_partitions_that_wait_for_this_stopped_node_do_not_stop_its_start() -> None:
    # A moment after its stop the quorum still counts the node among those that follow.
    facts = healthy(partitions={("orders", 0): partition(0, (1, 2, 3), (2, 3))})
    assert facts.is_alive(1)
    found = cluster_findings(facts, replace(NODE, runs=False))
    assert not stops(found)
    assert any("1 partition out of sync until this node starts: orders-0" in each.what for each in found)


def test_a_line_stays_short_with_ten_thousand_partitions() -> None:
    many = {("t", index): partition(index, (1, 2, 3), (1, 2)) for index in range(10_000)}
    (line,) = stops(cluster_findings(healthy(partitions=many), NODE))
    assert line == "10000 under-replicated partitions: t-0, t-1, t-2, t-3, t-4 and 9995 more; not in sync: 3"


@pytest.mark.slow
def test_the_facts_of_a_live_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from pykbroker.testing import Cluster

    with Cluster() as cluster:
        cluster.create_topic("orders", 3, replication_factor=3)
        settings = ClusterSettings(tuple(cluster.bootstrap_servers.split(",")))
        with AskedCluster(settings) as asked:
            facts = read_cluster(asked)
            assert not facts.unanswered
            assert [facts.is_alive(number) for number in (1, 2, 3, 4)] == [True, True, True, False]
            assert {index for topic, index in facts.partitions if topic == "orders"} == {0, 1, 2}
            assert facts.min_isr["orders"] == 2
            assert facts.clock_ahead_ms is not None
            identity = NodeIdentity(1, is_broker=True, is_controller=True, cluster_id=facts.id)
            assert not stops(cluster_findings(facts, identity))

            def refused(*_: object) -> None:
                raise AskFailed("not authorized", "ClusterAuthorizationException")

            monkeypatch.setattr(groups, "of_all_types", refused)
            facts = read_cluster(asked)
            assert facts.unanswered == [("the groups", "not authorized")]
            assert facts.partitions
