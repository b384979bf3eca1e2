"""Requests about partitions that only their leaders answer: each leader gets one request with its partitions.

Responsible for finding the leaders, and for asking again when one has changed. Not responsible for the content of
requests.

Invariant: a partition is asked about again only if its leader has refused it, or has not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, failed
from pykbroker.tools.cluster.topics import leaders
from pykbroker_wire.errors import ErrorCode

T = TypeVar("T")
Outcomes: TypeAlias = dict[PartitionName, T | AskFailed]


def of_leaders(
    cluster: AskedCluster,
    wanted: Iterable[PartitionName],
    ask: Callable[[int, list[PartitionName]], Outcomes[T]],
    *,
    raises: bool = False,
) -> Outcomes[T]:
    """Return the outcome of each partition. `ask` sends a request about partitions to their leader, a node, and returns
    the outcomes of its answer.

    A partition that its leader no longer leads is asked about again, for as long as the settings of the cluster allow.
    A failure that remains then, for example that a node does not answer, is the outcome of the partitions without one.
    It is raised as AskFailed if no partition has an outcome, and with `raises` also if only some have one.
    """
    places = list(dict.fromkeys(wanted))
    outcomes: Outcomes[T] = {}

    def attempt() -> None:
        left = [place for place in places if place not in outcomes]
        by_node, missing = by_leader(leaders(cluster, {topic for topic, _ in left}), left)
        outcomes.update(missing)
        moved: AskFailed | None = None
        for node, led in by_node.items():
            for place, outcome in ask(node, led).items():
                if isinstance(outcome, AskFailed) and outcome.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    moved = outcome
                else:
                    outcomes[place] = outcome
        if moved is not None:
            raise moved

    try:
        cluster.settled(attempt)
    except AskFailed as error:
        if raises or not outcomes:
            raise
        outcomes.update((place, error) for place in places if place not in outcomes)
    return outcomes


def by_leader(
    led_by: Mapping[PartitionName, int], wanted: Iterable[PartitionName]
) -> tuple[dict[int, list[PartitionName]], dict[PartitionName, AskFailed]]:
    """Return leader -> its partitions, and the error of each partition that has no leader or does not exist."""
    found: dict[int, list[PartitionName]] = {}
    missing: dict[PartitionName, AskFailed] = {}
    for partition in wanted:
        leader = led_by.get(partition)
        if leader is None:
            missing[partition] = failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif leader < 0:
            missing[partition] = failed(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            found.setdefault(leader, []).append(partition)
    return found, missing
