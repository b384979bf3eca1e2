"""A plan: the moves that a proposal stands for, what they bring, and the file that says so.

The file is one that kafka-reassign-partitions and `pykbroker reassign` take; the keys that are ours stand beside
theirs, which both pass over. A plan names the replicas of now, so that it can be seen whether they still hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pykbroker.balance.goals import Violation, violations
from pykbroker.balance.load_model import NO_BROKER, ClusterLoad, Floats, broker_loads, variation
from pykbroker.balance.optimiser import Proposal
from pykbroker.balance.seen import Resource, SeenBroker, SeenPartition


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """Lists of brokers in the order of preference."""

    topic: str
    partition: int
    now: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    partitions: tuple[PlannedPartition, ...]
    moves: int
    leader_changes: int
    bytes_moved: float
    #: (B, R) loads of brokers before and after
    before: Floats
    after: Floats
    #: (R,) coefficients of variation
    variation_before: Floats
    variation_after: Floats
    #: what the plan does not meet of the hard goals
    unmet: tuple[Violation, ...]


def plan_of(
    load: ClusterLoad, proposal: Proposal, brokers: Sequence[SeenBroker], partitions: Sequence[SeenPartition]
) -> Plan:
    changed = np.flatnonzero(np.any(load.replicas != proposal.replicas, axis=1))
    planned = []
    for number in changed:
        seen = partitions[number]
        wanted = tuple(brokers[each].id for each in proposal.replicas[number] if each != NO_BROKER)
        planned.append(PlannedPartition(seen.topic, seen.number, seen.replicas, wanted))
    before, after = broker_loads(load, load.replicas), broker_loads(load, proposal.replicas)
    return Plan(
        tuple(sorted(planned, key=lambda each: (each.topic, each.partition))),
        proposal.moves,
        proposal.leader_changes,
        proposal.bytes_moved,
        before,
        after,
        variation(before, load),
        variation(after, load),
        tuple(violations(load, proposal.replicas)),
    )


def as_json(plan: Plan, cluster_id: str) -> str:
    """The file."""
    resources = {
        each.name.lower(): [round(float(plan.variation_before[each]), 4), round(float(plan.variation_after[each]), 4)]
        for each in Resource
    }
    document = {
        "version": 1,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(each.replicas), "now": list(each.now)}
            for each in plan.partitions
        ],
        "cluster_id": cluster_id,
        "variation": resources,
        "bytes": int(plan.bytes_moved),
    }
    return json.dumps(document, indent=1)
