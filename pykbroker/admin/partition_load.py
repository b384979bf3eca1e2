"""The load of partitions as it is seen from outside: sizes of DescribeLogDirs, and offsets at both ends of a window.

Works with every Kafka. What consumers read and what CPU a partition costs cannot be seen like this. Not responsible for
what becomes of it (pykbroker/balance).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from pykbroker.admin import configs, log_offsets, reassignments, replicas_on_disk, topics
from pykbroker.admin.asked_cluster import AskedCluster, PartitionName
from pykbroker.admin.configs import ResourceKind
from pykbroker.admin.log_offsets import EARLIEST, LATEST, TimedOffset
from pykbroker.balance.seen import SeenBroker, SeenPartition


def seen(cluster: AskedCluster, window_seconds: float) -> tuple[list[SeenBroker], list[SeenPartition]]:
    """Takes as long as the window. A partition without a leader has no known rate."""
    racks = {node.id: node.rack for node in cluster.nodes()}
    names = [topic.name for topic in topics.listed(cluster)]
    found = topics.described(cluster, names)
    places = [(topic.name, row.number) for topic in found for row in topic.partitions]
    first = _ends(cluster, places, EARLIEST)
    begin, began = _ends(cluster, places, LATEST), time.monotonic()
    time.sleep(window_seconds)
    end, seconds = _ends(cluster, places, LATEST), time.monotonic() - began
    sizes = _sizes(cluster, racks)
    least = _min_isr(cluster, names)
    moving = reassignments.ongoing(cluster)
    partitions = []
    for topic in found:
        for row in topic.partitions:
            place = (topic.name, row.number)
            size = sizes.get(place, 0)
            rate = _rate(size, first.get(place), begin.get(place), end.get(place), seconds)
            partitions.append(
                SeenPartition(
                    topic.name,
                    row.number,
                    row.replicas,
                    row.isr,
                    least.get(topic.name, 1),
                    size,
                    rate,
                    is_moving=place in moving,
                )
            )
    known = set(racks) | {broker for each in partitions for broker in each.replicas}
    return [SeenBroker(each, racks.get(each), is_alive=each in racks) for each in sorted(known)], partitions


def _rate(size: int, first: int | None, begin: int | None, end: int | None, seconds: float) -> float | None:
    """Bytes per second: records of the window, each as large as the average of the log."""
    if first is None or begin is None or end is None or seconds <= 0:
        return None
    return max(0, end - begin) * (size / (end - first) if end > first else 0.0) / seconds


def _ends(cluster: AskedCluster, places: Iterable[PartitionName], which: int) -> dict[PartitionName, int]:
    answers = log_offsets.found(cluster, dict.fromkeys(places, which))
    return {place: answer.offset for place, answer in answers.items() if isinstance(answer, TimedOffset)}


def _sizes(cluster: AskedCluster, brokers: Iterable[int]) -> dict[PartitionName, int]:
    """Of the largest replica."""
    largest: dict[PartitionName, int] = {}
    for directories in replicas_on_disk.described(cluster, brokers).values():
        for replica in (one for directory in directories for one in directory.replicas if not one.is_future):
            place = (replica.topic, replica.partition)
            largest[place] = max(largest.get(place, 0), replica.size_bytes)
    return largest


def _min_isr(cluster: AskedCluster, names: Iterable[str]) -> Mapping[str, int]:
    told = configs.described(cluster, [(ResourceKind.TOPIC, name) for name in names])
    return {
        resource[1]: int(one.value or 1)
        for resource, found in told.items()
        for one in found
        if one.name == "min.insync.replicas"
    }
