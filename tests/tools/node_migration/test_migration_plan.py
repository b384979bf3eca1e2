"""The plan of a move: the order of nodes by their roles, and the steps of each."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.tools.cluster.asked_cluster import ClusterNode
from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica
from pykbroker.tools.node_migration.cluster_facts import ClusterFacts
from pykbroker.tools.node_migration.migration_plan import NodeRole, migration_plan, planned_nodes

BOOTSTRAP = "host1:9092"


def facts(voters: Iterable[int], brokers: Iterable[int], active: int, kraft: int = 1) -> ClusterFacts:
    replicas = tuple(QuorumReplica(number, None, 1, 1, 1) for number in voters)
    return ClusterFacts(
        "one",
        tuple(ClusterNode(number, f"host{number}", 9092) for number in brokers),
        {"metadata.version": 30, **({"kraft.version": kraft} if kraft else {})},
        DescribedQuorum(active, 1, 1, replicas, ()),
    )


def order(found: ClusterFacts) -> list[int]:
    return [node.id for node in planned_nodes(found)]


def test_the_active_controller_of_combined_nodes_moves_last() -> None:
    assert order(facts((1, 2, 3), (1, 2, 3), active=2)) == [1, 3, 2]
    assert order(facts((1, 2, 3), (1, 2, 3, 4, 5), active=1)) == [2, 3, 4, 5, 1]


def test_isolated_controllers_move_before_brokers_and_the_active_one_last_of_them() -> None:
    found = facts((101, 102, 103), (1, 2), active=101)
    assert order(found) == [102, 103, 101, 1, 2]
    roles = [node.role for node in planned_nodes(found)]
    assert roles == [NodeRole.CONTROLLER] * 3 + [NodeRole.BROKER] * 2


def test_each_node_is_checked_stopped_started_and_waited_for_before_the_next() -> None:
    steps = migration_plan(facts((1, 2, 3), (1, 2, 3), active=3), BOOTSTRAP)
    by_node = [(step.node, step.command.split()[:2]) for step in steps if step.node is not None]
    each = [
        ["pykbroker", "migrate"],
        ["kill", "-TERM"],
        ["pykbroker", "start"],
        ["pykbroker", "quorum"],
        ["pykbroker", "topics"],
    ]
    assert [node for node, _ in by_node] == [1] * 5 + [2] * 5 + [3] * 5
    assert [command[:2] for _, command in by_node] == each * 3
    assert "the active controller" in steps[-7].what
    assert [step.command.split()[1:3] for step in steps[-2:]] == [["leaders", "elect"], ["migrate", "plan"]]


def test_the_way_back_has_the_same_order_and_starts_apache_kafka() -> None:
    found = facts((1, 2, 3), (1, 2, 3), active=3)
    there, back = migration_plan(found, BOOTSTRAP), migration_plan(found, BOOTSTRAP, back=True)
    assert [step.node for step in back if step.node] == [step.node for step in there if step.node]
    assert sum("kafka-server-start.sh" in step.command for step in back) == 3
    assert not any(step.command.startswith("pykbroker start") for step in back)


def test_only_a_broker_leaves_a_mark_of_its_clean_stop() -> None:
    steps = migration_plan(facts((101,), (1,), active=101), BOOTSTRAP)
    stops = {step.node: ".kafka_cleanshutdown" in step.what for step in steps if step.command.startswith("kill")}
    assert stops == {101: False, 1: True}


def test_static_voters_are_named_only_where_they_count() -> None:
    named = [
        any("controller.quorum.voters" in step.what for step in migration_plan(facts((1,), (1,), 1, kraft), BOOTSTRAP))
        for kraft in (0, 1)
    ]
    assert named == [True, False]
