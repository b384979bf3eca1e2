"""Moves of partitions between brokers: list, start and cancel them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, check, failed


@dataclass(slots=True, frozen=True)
class OngoingMove:
    """A partition that is being reassigned. `replicas`: the current replicas and those that are being added."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def ongoing(
    cluster: AskedCluster, partitions: Iterable[PartitionName] | None = None
) -> dict[PartitionName, OngoingMove]:
    """Return the moves in progress, of these partitions or of all."""
    from pykbroker_wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        ListPartitionReassignmentsTopics,
    )

    wanted = None
    if partitions is not None:
        numbers = by_topic(partitions)
        if not numbers:
            return {}
        wanted = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=sorted(found))
            for name, found in numbers.items()
        ]
    answer = cluster.ask_controller(
        ListPartitionReassignmentsRequest(topics=wanted), ListPartitionReassignmentsResponse
    )
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, row.partition_index): OngoingMove(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def alter(
    cluster: AskedCluster,
    wanted: Mapping[PartitionName, Sequence[int] | None],
    *,
    may_change_replication_factor: bool = True,
) -> dict[PartitionName, AskFailed]:
    """Start moves, or cancel the move of a partition whose replicas are None. Returns the error of each partition that
    failed."""
    from pykbroker_wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=_listed(wanted[name, number]))
                for number in sorted(numbers)
            ],
        )
        for name, numbers in by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(
        topics=topics, allow_replication_factor_change=may_change_replication_factor
    )
    answer = cluster.ask_controller(
        request, AlterPartitionReassignmentsResponse, least=0 if may_change_replication_factor else 1
    )
    check(answer.error_code, answer.error_message)
    return {
        (topic.name, row.partition_index): failed(row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
        if row.error_code
    }


def by_topic(partitions: Iterable[PartitionName]) -> dict[str, list[int]]:
    """Return topic -> partition numbers, in the order given."""
    found: dict[str, list[int]] = {}
    for name, number in partitions:
        found.setdefault(name, []).append(number)
    return found


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
