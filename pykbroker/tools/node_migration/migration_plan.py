"""The steps of a move of a whole cluster, in order, with their commands. Pure: facts in, steps out.

Responsible for the order of the nodes. Isolated controllers move first, then the other nodes, and the active controller
moves as the last one of its kind, because each earlier move would only make another node active. Not responsible for
carrying steps out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pykbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION, metadata_version_name
from pykbroker.tools.node_migration.cluster_facts import ClusterFacts

_KAFKA: Final = "Apache Kafka"
_OURS: Final = "pykbroker"


class NodeRole(Enum):
    CONTROLLER = "controller"
    BROKER = "broker"
    COMBINED = "combined"


@dataclass(frozen=True, slots=True)
class PlannedNode:
    id: int
    role: NodeRole
    is_active_controller: bool


@dataclass(frozen=True, slots=True)
class PlannedStep:
    #: None for a step of the whole cluster
    node: int | None
    what: str
    command: str


def planned_nodes(facts: ClusterFacts) -> list[PlannedNode]:
    """Return the nodes in the order in which they move."""
    assert facts.quorum is not None, "the roles are not known without the quorum"
    voters, brokers = {each.id for each in facts.quorum.voters}, {each.id for each in facts.brokers}
    found = []
    for number in sorted(voters | brokers):
        role = NodeRole.COMBINED if number in voters & brokers else NodeRole.BROKER
        if number not in brokers:
            role = NodeRole.CONTROLLER
        found.append(PlannedNode(number, role, number == facts.quorum.leader))
    # The active controller is last among the isolated controllers, or last of all if it is a broker too.
    return sorted(found, key=lambda node: (node.role is not NodeRole.CONTROLLER, node.is_active_controller, node.id))


def migration_plan(facts: ClusterFacts, bootstrap: str, *, back: bool = False) -> list[PlannedStep]:
    """Return the steps to pykbroker, or with `back` those to Apache Kafka."""
    nodes = planned_nodes(facts)
    steps = [*_before(facts, bootstrap)]
    for node in nodes:
        steps += _of_node(node, bootstrap, back=back)
    return [*steps, *_after(facts, bootstrap, back=back)]


def _before(facts: ClusterFacts, bootstrap: str) -> Iterator[PlannedStep]:
    level = facts.levels.get(METADATA_VERSION, 0)
    yield PlannedStep(
        None,
        f"Change nothing else during the move: no feature level (metadata.version is {metadata_version_name(level)}), "
        "no reassignment, no voter",
        f"pykbroker cluster features -b {bootstrap}",
    )
    if not facts.levels.get(KRAFT_VERSION):
        yield PlannedStep(
            None,
            "kraft.version is 0: controller.quorum.voters has the same text on every node, and stays as it is",
            "grep ^controller.quorum.voters server.properties",
        )


def _of_node(node: PlannedNode, bootstrap: str, *, back: bool) -> Iterator[PlannedStep]:
    old, new = (_OURS, _KAFKA) if back else (_KAFKA, _OURS)
    note = ", the active controller" if node.is_active_controller else ""
    yield PlannedStep(
        node.id,
        f"Check the node ({node.role.value}{note}) on its machine, and go on only if there is no stop",
        f"pykbroker migrate check -c server.properties -b {bootstrap}",
    )
    marks = "" if node.role is NodeRole.CONTROLLER else ", and for .kafka_cleanshutdown in each of log.dirs"
    yield PlannedStep(
        node.id, f"Stop {old} with SIGTERM; wait for the end of its process{marks}", f"kill -TERM PID-OF-NODE-{node.id}"
    )
    start = "kafka-server-start.sh server.properties" if back else "pykbroker start server.properties"
    yield PlannedStep(node.id, f"Start {new} with the same properties, as the same user", start)
    yield PlannedStep(
        node.id,
        f"Wait until node {node.id} has lag 0 in the quorum, and go on only then",
        f"pykbroker quorum describe -b {bootstrap}",
    )
    yield PlannedStep(
        node.id,
        "Wait until no topic is under-replicated, and go on only then",
        f"pykbroker topics list --internal --under-replicated -b {bootstrap}",
    )


def _after(facts: ClusterFacts, bootstrap: str, *, back: bool) -> Iterator[PlannedStep]:
    if len(facts.brokers) > 1:
        yield PlannedStep(
            None,
            "Give the leaderships back to the preferred replicas",
            f"pykbroker leaders elect --all-topics -b {bootstrap}",
        )
    if not back:
        yield PlannedStep(
            None,
            "To step back, at any point: the same steps per node, with Apache Kafka in the place of pykbroker",
            f"pykbroker migrate plan --back -b {bootstrap}",
        )
