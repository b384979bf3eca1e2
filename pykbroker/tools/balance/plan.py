"""A plan: the moves of a proposal, their effect, and the file that contains them.

kafka-reassign-partitions and `pykbroker reassign` take the file; they ignore our additional keys. A plan names the
current replicas, so that a run can check whether it still applies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykbroker.tools.balance.directory_spread import DirectoryMove
from pykbroker.tools.balance.goals import violations
from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Floats, broker_loads, new_replicas, variation
from pykbroker.tools.balance.optimiser import Proposal
from pykbroker.tools.balance.plan_file import ANY_DIRECTORY
from pykbroker.tools.balance.seen import LoadResource, SeenBroker, SeenPartition, coverage


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """`now` and `replicas`: the brokers before and after the move, in the order of preference."""

    topic: str
    partition: int
    now: tuple[int, ...]
    replicas: tuple[int, ...]
    #: bytes per second that producers write
    bytes_in: float = 0.0


@dataclass(frozen=True, slots=True)
class UnmetGoal:
    """`subject`: `broker 5`, or `topic-3`."""

    goal: str
    subject: str
    text: str


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
    #: the hard goals that the plan does not meet
    unmet: tuple[UnmetGoal, ...]
    #: the share of partitions whose load was known
    coverage: float


def plan_of(
    load: ClusterLoad, proposal: Proposal, brokers: Sequence[SeenBroker], partitions: Sequence[SeenPartition]
) -> Plan:
    def subject(number: int, *, is_broker: bool) -> str:
        if is_broker:
            return f"broker {brokers[number].id}"
        return f"{partitions[number].topic}-{partitions[number].number}"

    changed = np.flatnonzero(np.any(load.replicas != proposal.replicas, axis=1))
    planned = []
    for number in changed.tolist():
        seen = partitions[number]
        wanted = tuple(brokers[each].id for each in proposal.replicas[number] if each != NO_BROKER)
        rate = round(float(load.bytes_in[number]))
        planned.append(PlannedPartition(seen.topic, seen.number, seen.replicas, wanted, rate))
    copied = new_replicas(load.replicas, proposal.replicas)
    before, after = broker_loads(load, load.replicas), broker_loads(load, proposal.replicas)
    return Plan(
        tuple(sorted(planned, key=lambda each: (each.topic, each.partition))),
        int(copied.sum()),
        proposal.leader_changes,
        float((copied * load.size).sum()),
        before,
        after,
        variation(before, load),
        variation(after, load),
        tuple(
            UnmetGoal(each.goal, subject(each.subject, is_broker=each.is_of_broker), each.text)
            for each in violations(load, proposal.replicas)
        ),
        coverage(partitions),
    )


def as_json(plan: Plan, cluster_id: str, directories: Sequence[DirectoryMove] = ()) -> str:
    """Return the text of the file. `directories`: moves between directories of one broker, for partitions that the plan
    does not move between brokers."""
    resources = {
        each.name.lower(): [round(float(plan.variation_before[each]), 4), round(float(plan.variation_after[each]), 4)]
        for each in LoadResource
    }
    partitions: list[dict[str, Any]] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(each.replicas),
            "now": list(each.now),
            "bytes_in": each.bytes_in,
        }
        for each in plan.partitions
    ]
    paths: dict[tuple[str, int], dict[int, str]] = {}
    replicas = {}
    for move in directories:
        place = (move.replica.topic, move.replica.partition)
        paths.setdefault(place, {})[move.replica.broker] = move.path
        replicas[place] = list(move.replica.replicas)
    for (topic, number), named in sorted(paths.items()):
        brokers = replicas[topic, number]
        lies_in = [named.get(broker, ANY_DIRECTORY) for broker in brokers]
        partitions.append(
            {"topic": topic, "partition": number, "replicas": brokers, "now": brokers, "log_dirs": lies_in}
        )
    document = {
        "version": 1,
        "partitions": partitions,
        "cluster_id": cluster_id,
        "coverage": round(plan.coverage, 4),
        "variation": resources,
        "bytes": int(plan.bytes_moved),
    }
    return json.dumps(document, indent=1)
