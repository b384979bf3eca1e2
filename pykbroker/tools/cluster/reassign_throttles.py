"""Throttles of moves: the replicas and brokers that they apply to. Pure.

As in Apache Kafka's tool, the current replicas of a partition are throttled as leaders, and the replicas that a move
adds are throttled as followers (KIP-73).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import PartitionName
    from pykbroker.tools.cluster.reassignments import OngoingMove


class Throttled(NamedTuple):
    """Values of the topic configurations `leader.` and `follower.replication.throttled.replicas`, and the brokers whose
    rates are to be limited."""

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: list[int]


def throttled(
    under_way: Mapping[PartitionName, OngoingMove],
    wanted: Mapping[PartitionName, Sequence[int]],
    current: Mapping[PartitionName, Sequence[int]],
) -> Throttled:
    """Return the throttles of these moves and of the moves that are `under_way`. The sources of the latter are the
    replicas from before they began."""
    sources = {place: set(move.replicas) - set(move.adding) for place, move in under_way.items()}
    destinations = {place: set(move.adding) for place, move in under_way.items()}
    for place, replicas in wanted.items():
        sources.setdefault(place, set(current[place]))
        destinations[place] = set(replicas) - sources[place]
    brokers = set().union(*sources.values(), *destinations.values())
    return Throttled(_by_topic(sources), _by_topic(destinations), sorted(brokers))


def _by_topic(replicas: Mapping[PartitionName, set[int]]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for (topic, number), brokers in replicas.items():
        found.setdefault(topic, []).extend(f"{number}:{broker}" for broker in brokers)
    # Apache Kafka's tool sorts the entries as text.
    return {topic: ",".join(sorted(each)) for topic, each in found.items()}
