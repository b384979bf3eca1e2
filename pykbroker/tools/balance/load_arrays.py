"""Converts the measured state of a cluster to arrays.

Responsible for the partitions that are held, which means neither moved nor reordered. These are partitions of excluded
topics, and partitions below their min ISR, already moving, or without a leader. A partition is also held if one of its
brokers is down and is not to be emptied.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pykbroker.tools.balance.load_model import NO_BROKER, ClusterLoad, Ints
from pykbroker.tools.balance.seen import LEAST_COVERAGE, LoadResource, SeenBroker, SeenPartition, coverage


def cluster_load(
    brokers: Sequence[SeenBroker],
    partitions: Sequence[SeenPartition],
    *,
    excluded: Collection[str] = (),
    leaving: Collection[int] = (),
) -> ClusterLoad:
    """Return the arrays. `excluded`: topics that stay as they are; `leaving`: brokers to empty. Raises ValueError for
    an unknown topic or broker, and if the load of too few partitions is known."""
    check_names(brokers, partitions, excluded=excluded, leaving=leaving)
    known = coverage(partitions)
    if known < LEAST_COVERAGE:
        raise ValueError(f"the load of {known:.1%} of the partitions is known, and a plan needs {LEAST_COVERAGE:.0%}")
    index = {broker.id: number for number, broker in enumerate(brokers)}
    leaves = np.array([broker.id in leaving for broker in brokers], bool)
    alive = np.array([broker.is_alive for broker in brokers], bool)
    widest = max((len(each.replicas) for each in partitions), default=1)
    replicas = np.full((len(partitions), widest), NO_BROKER, np.int32)
    for number, each in enumerate(partitions):
        replicas[number, : len(each.replicas)] = [index[broker] for broker in each.replicas]
    gone = {broker.id for broker in brokers if not broker.is_alive} - set(leaving)
    held = np.array(
        [each.topic in excluded or _is_fragile(each) or not gone.isdisjoint(each.replicas) for each in partitions], bool
    )
    bytes_in = np.array([each.bytes_in or 0.0 for each in partitions])
    return ClusterLoad(
        racks=_rack_numbers(brokers),
        capacity=np.array(
            [[broker.capacity.get(each, np.inf) for each in LoadResource] for broker in brokers], float
        ).reshape(len(brokers), len(LoadResource)),
        most_replicas=np.array(
            [np.iinfo(np.int32).max if each.most_replicas is None else each.most_replicas for each in brokers], np.int32
        ),
        alive=alive,
        may_take=alive & ~leaves,
        leaving=leaves,
        replicas=replicas,
        may_move=~held,
        may_reorder=~held,
        bytes_in=bytes_in,
        bytes_out=np.array([each.bytes_out for each in partitions], float),
        size=np.array([each.size for each in partitions], float),
        leader_cpu=np.array([each.leader_cpu for each in partitions], float),
        follower_cpu=np.array([each.follower_cpu for each in partitions], float),
    )


def check_names(
    brokers: Sequence[SeenBroker],
    partitions: Sequence[SeenPartition],
    *,
    excluded: Collection[str],
    leaving: Collection[int],
) -> None:
    """Raise ValueError for an unknown topic or broker, and if no broker is left."""
    if unknown := sorted(set(excluded) - {each.topic for each in partitions}):
        raise ValueError(f"topic {unknown[0]} is not in the cluster")
    if missing := sorted(set(leaving) - {broker.id for broker in brokers}):
        raise ValueError(f"broker {missing[0]} is not in the cluster")
    if not any(broker.is_alive and broker.id not in leaving for broker in brokers):
        raise ValueError("no broker is left that could take replicas")


def _is_fragile(each: SeenPartition) -> bool:
    """Return True if the partition moves, has no leader, or has too few replicas in sync. If min.insync.replicas is
    above the number of replicas, all replicas are enough, because the partition can never have more."""
    return each.is_moving or not each.has_leader or len(each.isr) < min(each.min_isr, len(each.replicas))


def _rack_numbers(brokers: Sequence[SeenBroker]) -> Ints:
    """Return the number of each broker's rack. A broker without a rack gets a number of its own."""
    names: dict[str, int] = {}
    numbers = [
        names.setdefault(f"broker {each.id}" if each.rack is None else f"rack {each.rack}", len(names))
        for each in brokers
    ]
    return np.array(numbers, np.int32)
