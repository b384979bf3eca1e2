"""The moves that a run of `balance` has in progress, from its marks in the cluster, and a function that ends a run of
another process."""

from __future__ import annotations

from dataclasses import dataclass

from pykbroker.tools.cluster import reassignments, replicas_on_disk, run_marks
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.plan_execution import call_back, stop_directory_moves
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName
from pykbroker.tools.cluster.run_marks import RunMarks


@dataclass(frozen=True, slots=True)
class ReplicaUnderWay:
    """A replica that is being copied; sizes in bytes. `directory`: the directory of the same broker that it moves to,
    or None if the copy comes from another broker."""

    topic: str
    partition: int
    broker: int
    copied: int
    size: int
    directory: str | None = None


def under_way(cluster: AskedCluster, marks: RunMarks) -> list[ReplicaUnderWay]:
    """Return the copies in progress of the marked partitions."""
    moves = reassignments.ongoing(cluster, marks.before)
    names = {name for name, _ in marks.before}
    alive = {node.id for node in cluster.nodes()}
    sizes: dict[ReplicaName, int] = {}
    largest: dict[PartitionName, int] = {}
    future: list[ReplicaUnderWay] = []
    told = replicas_on_disk.described(cluster, sorted(alive), names) if names else {}
    for broker, directories in told.items():
        for path, one in ((each.path, one) for each in directories for one in each.replicas):
            place = (one.topic, one.partition)
            if place in marks.before and one.is_future:
                future.append(ReplicaUnderWay(*place, broker, one.size_bytes, 0, path))
            elif place in marks.before:
                sizes[ReplicaName(*place, broker)] = one.size_bytes
                largest[place] = max(largest.get(place, 0), one.size_bytes)
    found = [
        ReplicaUnderWay(*place, broker, sizes.get(ReplicaName(*place, broker), 0), largest.get(place, 0))
        for place, move in moves.items()
        for broker in move.adding
    ]
    for each in future:
        size = sizes.get(ReplicaName(each.topic, each.partition, each.broker), 0)
        found.append(ReplicaUnderWay(each.topic, each.partition, each.broker, each.copied, size, each.directory))
    return sorted(found, key=lambda each: (each.topic, each.partition, each.broker))


def ended(cluster: AskedCluster, marks: RunMarks) -> list[PartitionName]:
    """Cancel the marked moves, restore the order of replicas from before, and remove throttle and marks. Returns the
    partitions that were moving."""
    marks = run_marks.end(cluster, marks)
    moving = reassignments.ongoing(cluster, marks.before)
    call_back(cluster, {place: marks.before[place] for place in moving})
    in_directories = [each for each in under_way(cluster, marks) if each.directory is not None]
    stop_directory_moves(cluster, [ReplicaName(each.topic, each.partition, each.broker) for each in in_directories])
    run_marks.clear(cluster, marks)
    return sorted({*moving, *((each.topic, each.partition) for each in in_directories)})
