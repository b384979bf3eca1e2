"""Hard goals: what a placement of replicas must never break, and whether one does.

`violations` judges a whole placement from nothing but the load and the replicas: tests and `balance plan` ask it about
what the optimiser has made, so that no plan is its own judge. A goal that was broken before and could not be met is
told, too. Not responsible for what is better among what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykbroker.balance.load_model import NO_BROKER, ClusterLoad, Flags, Ints, broker_loads
from pykbroker.balance.seen import Resource

#: Of rounding: sums of floats in another order.
_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Violation:
    """`subject`: the number of a broker or partition, as `goal` says."""

    goal: str
    subject: int
    text: str


def rack_pairs(replicas: Ints, racks: Ints) -> Ints:
    """(P,) in how many pairs of its replicas a partition has the same rack twice."""
    at = np.where(replicas == NO_BROKER, -1 - np.arange(replicas.shape[1], dtype=np.int32), racks[replicas])
    pairs = np.zeros(len(replicas), np.int32)
    for first in range(replicas.shape[1]):
        for second in range(first + 1, replicas.shape[1]):
            pairs += at[:, first] == at[:, second]
    return pairs


def fewest_rack_pairs(load: ClusterLoad) -> Ints:
    """(P,) the fewest that the racks of the brokers that may take replicas allow, evenly spread."""
    racks = len(np.unique(load.racks[load.may_take])) or 1
    counts = load.replica_counts
    full, rest = counts // racks, counts % racks
    fewest: Ints = (rest * (full + 1) * full // 2 + (racks - rest) * full * (full - 1) // 2).astype(np.int32)
    return fewest


def has_twins(replicas: Ints) -> Flags:
    """(P,) whether a broker has two replicas of the partition."""
    ordered = np.sort(replicas, axis=1)
    twins: Flags = np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_BROKER), axis=1)
    return twins


def violations(load: ClusterLoad, replicas: Ints) -> list[Violation]:
    """What this placement breaks. A partition that may not move is judged by nothing but whether it moved."""
    found: list[Violation] = []

    def tell(goal: str, broken: Flags, text: str) -> None:
        found.extend(Violation(goal, int(each), text) for each in np.flatnonzero(broken))

    before = load.replicas
    tell(
        "replica count",
        load.replica_counts != np.count_nonzero(replicas != NO_BROKER, axis=1),
        "another number of replicas",
    )
    tell("one replica a broker", has_twins(replicas), "two replicas on one broker")
    elsewhere = np.any(np.sort(replicas, axis=1) != np.sort(before, axis=1), axis=1)
    tell("stays where it is", elsewhere & ~load.may_move, "a partition moved that may not")
    reordered = ~elsewhere & np.any(replicas != before, axis=1)
    tell("keeps its order", reordered & ~load.may_reorder, "a partition got another leader that may not")
    pairs = rack_pairs(replicas, load.racks)
    tell("racks", load.may_move & (pairs > fewest_rack_pairs(load)), "replicas share a rack")
    # A broker that may not take load keeps what it has.
    for place in range(replicas.shape[1]):
        here = replicas[:, place]
        is_new = (here != NO_BROKER) & ~np.any(before == here[:, None], axis=1)
        tell("takes no replica", is_new & ~load.may_take[here], "a replica went to a broker that may take none")
    on_leaving = np.zeros(len(load.racks), bool)
    movable = replicas[load.may_move]
    on_leaving[movable[movable != NO_BROKER]] = True
    tell("leaves", on_leaving & load.leaving, "a broker that leaves has replicas")
    counts = np.bincount(replicas[replicas != NO_BROKER], minlength=len(load.racks))
    tell("number of replicas", counts > load.most_replicas, "too many replicas")
    totals = broker_loads(load, replicas)
    for resource in Resource:
        limit = load.capacity[:, resource]
        tell(f"capacity of {resource.name}", totals[:, resource] > limit * (1 + _SLACK) + _SLACK, "above its capacity")
    return found
