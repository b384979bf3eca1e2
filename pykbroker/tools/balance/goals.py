"""Hard goals: the rules that a placement of replicas must keep, and a check of them.

`violations` judges a whole placement from the load and the replicas alone. Tests and `balance plan` call it on the
optimiser's result, so that the optimiser does not judge itself. It also reports a goal that was broken before the plan
and that the plan cannot meet. Not responsible for the choice between allowed placements (optimiser.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Flags, Floats, Ints, broker_loads, names_gone
from pykbroker.tools.balance.seen import LoadResource, in_words

#: Tolerance for rounding, because floats are summed in another order.
_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Violation:
    """`subject`: the number of a broker, or of a partition."""

    goal: str
    subject: int
    text: str
    is_of_broker: bool = False


def rack_pairs(replicas: Ints, racks: Ints) -> Ints:
    """(P,) the number of pairs of replicas of a partition that share a rack."""
    at = np.where(replicas == NO_BROKER, -1 - np.arange(replicas.shape[1], dtype=np.int32), racks[replicas])
    pairs = np.zeros(len(replicas), np.int32)
    for first in range(replicas.shape[1]):
        for second in range(first + 1, replicas.shape[1]):
            pairs += at[:, first] == at[:, second]
    return pairs


def fewest_rack_pairs(load: ClusterLoad) -> Ints:
    """(P,) the fewest pairs of replicas in one rack that are possible with the brokers that may take replicas. A rack
    gets at most one replica per such broker. If a partition has more replicas than there are such brokers, any number
    is allowed."""
    _, sizes = np.unique(load.racks[load.may_take], return_counts=True)
    # The n-th replica in a rack makes n - 1 pairs, so the cheapest places come first.
    each = np.sort(np.concatenate([np.arange(size) for size in sizes])) if len(sizes) else np.zeros(0, int)
    counts = np.arange(load.replicas.shape[1] + 1)
    most = counts * (counts - 1) // 2
    fewest = most.copy()
    reach = min(len(each), len(counts) - 1)
    fewest[: reach + 1] = np.concatenate([[0], np.cumsum(each)])[: reach + 1]
    found: Ints = fewest[load.replica_counts].astype(np.int32)
    return found


def has_twins(replicas: Ints) -> Flags:
    """(P,) True where a broker has two replicas of the partition."""
    ordered = np.sort(replicas, axis=1)
    twins: Flags = np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_BROKER), axis=1)
    return twins


def over_capacity(load: ClusterLoad, totals: Floats) -> Floats:
    """(B, R) the load of a broker above its capacity. A broker that is down has no load."""
    limit = load.capacity
    over = (totals > limit * (1 + _SLACK) + _SLACK) & load.alive[:, None]
    return np.where(over, totals - np.where(over, limit, 0), 0.0)


def violations(load: ClusterLoad, replicas: Ints) -> list[Violation]:
    """Return the goals that this placement breaks. A partition that may not move breaks a goal if it moved. A broker
    that had to lose its replicas breaks a goal if it still has a replica, even of a partition that may not move."""
    return _of_partitions(load, replicas) + _of_brokers(load, replicas)


def _of_partitions(load: ClusterLoad, replicas: Ints) -> list[Violation]:
    found: list[Violation] = []

    def tell(goal: str, broken: Flags, text: str) -> None:
        found.extend(Violation(goal, int(each), text) for each in np.flatnonzero(broken))

    before = load.replicas
    tell(
        "replica count",
        load.replica_counts != np.count_nonzero(replicas != NO_BROKER, axis=1),
        "has another number of replicas",
    )
    tell("one replica a broker", has_twins(replicas), "has two replicas on one broker")
    elsewhere = np.any(np.sort(replicas, axis=1) != np.sort(before, axis=1), axis=1)
    tell("stays where it is", elsewhere & ~load.may_move, "moved and may not")
    changed = np.any(replicas != before, axis=1)
    tell("keeps its order", changed & ~elsewhere & ~load.may_reorder, "got another preferred leader and may not")
    tell("brokers that are gone", changed & names_gone(load, replicas), "changed and is on a broker that is gone")
    pairs = rack_pairs(replicas, load.racks)
    tell("racks", load.may_move & (pairs > fewest_rack_pairs(load)), "has replicas that share a rack")
    # A broker that may not take load keeps the replicas that it has.
    for place in range(replicas.shape[1]):
        here = replicas[:, place]
        is_new = (here != NO_BROKER) & ~np.any(before == here[:, None], axis=1)
        tell("takes no replica", is_new & ~load.may_take[here], "went to a broker that may take nothing")
    return found


def _of_brokers(load: ClusterLoad, replicas: Ints) -> list[Violation]:
    found: list[Violation] = []
    counts = np.bincount(replicas[replicas != NO_BROKER], minlength=len(load.racks))
    for each in np.flatnonzero((counts > 0) & load.leaving).tolist():
        found.append(Violation("leaves", each, f"leaves and keeps {counts[each]:,} replicas", True))
    for each in np.flatnonzero((counts > load.most_replicas) & load.alive).tolist():
        text = f"has {counts[each]:,} replicas, and its limit is {load.most_replicas[each]:,}"
        found.append(Violation("number of replicas", each, text, True))
    totals = broker_loads(load, replicas)
    over = over_capacity(load, totals)
    for resource in LoadResource:
        for each in np.flatnonzero(over[:, resource]).tolist():
            has, limit = (in_words(resource, float(all_of[each, resource])) for all_of in (totals, load.capacity))
            text = f"has {has}, and its limit is {limit}"
            found.append(Violation(f"capacity of {resource.name}", each, text, True))
    return found
