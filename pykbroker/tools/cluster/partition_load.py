"""The load of partitions, measured from outside: sizes of DescribeLogDirs, and offsets at both ends of a window.

This works with every Kafka. It cannot measure the bytes that consumers read, nor the CPU time of a partition. Not
responsible for the use of the numbers (pykbroker/tools/balance).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pykbroker.tools.balance.directory_spread import BrokerDirectory, StoredReplica
from pykbroker.tools.balance.load_file import PartitionRates
from pykbroker.tools.balance.seen import SeenBroker, SeenPartition
from pykbroker.tools.cluster import configs, log_offsets, reassignments, replicas_on_disk, topics
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.configs import ResourceKind
from pykbroker.tools.cluster.log_offsets import EARLIEST, LATEST, TimedOffset
from pykbroker.tools.cluster.topics import DescribedPartition, DescribedTopic


@dataclass(frozen=True, slots=True)
class PlacedReplicas:
    """The places of the replicas at one time."""

    #: rack of each broker that was alive
    racks: Mapping[int, str | None]
    topics: Sequence[DescribedTopic]
    #: partitions that were being reassigned
    moving: Collection[PartitionName]

    @property
    def rows(self) -> dict[PartitionName, DescribedPartition]:
        return {(topic.name, row.number): row for topic in self.topics for row in topic.partitions}

    def brokers(self) -> list[SeenBroker]:
        """Return the brokers, also brokers that are no longer alive but still have a replica."""
        known = set(self.racks) | {broker for row in self.rows.values() for broker in row.replicas}
        return [SeenBroker(each, self.racks.get(each), is_alive=each in self.racks) for each in sorted(known)]


def placed(cluster: AskedCluster) -> PlacedReplicas:
    racks = {node.id: node.rack for node in cluster.nodes()}
    found = topics.described(cluster, [topic.name for topic in topics.listed(cluster)])
    return PlacedReplicas(racks, found, set(reassignments.ongoing(cluster)))


def seen(
    cluster: AskedCluster, before: PlacedReplicas, window_seconds: float
) -> tuple[list[SeenBroker], list[SeenPartition]]:
    """Measure the load during a window, and return the brokers and partitions at its end. A partition counts as moving
    if it was being reassigned at an end of the window, or if its replicas changed in between. The rate of a partition
    without a leader is unknown."""
    first = _ends(cluster, before.rows, EARLIEST)
    begin, began = _ends(cluster, before.rows, LATEST), time.monotonic()
    time.sleep(window_seconds)
    after = placed(cluster)
    end, seconds = _ends(cluster, after.rows, LATEST), time.monotonic() - began
    sizes = _sizes(cluster, after.racks)
    least = _min_isr(cluster, [topic.name for topic in after.topics])
    rows_before = before.rows
    partitions = []
    for place, row in after.rows.items():
        size = sizes.get(place, 0)
        rate = _rate(size, first.get(place), begin.get(place), end.get(place), seconds)
        has_moved = (
            place in before.moving
            or place in after.moving
            or (place in rows_before and rows_before[place].replicas != row.replicas)
        )
        rates = None if rate is None else PartitionRates(rate)
        partitions.append(_seen(place, row, least, size, rates, is_moving=has_moved))
    return after.brokers(), partitions


def told(
    cluster: AskedCluster, loads: Mapping[PartitionName, PartitionRates]
) -> tuple[list[SeenBroker], list[SeenPartition]]:
    """Return the brokers and partitions with the loads of a file. Sizes that the file lacks come from
    DescribeLogDirs."""
    now = placed(cluster)
    sizes = _sizes(cluster, now.racks)
    least = _min_isr(cluster, [topic.name for topic in now.topics])
    partitions = []
    for place, row in now.rows.items():
        rates = loads.get(place)
        size = sizes.get(place, 0) if rates is None or rates.size is None else rates.size
        partitions.append(_seen(place, row, least, size, rates, is_moving=place in now.moving))
    return now.brokers(), partitions


def _seen(
    place: PartitionName,
    row: DescribedPartition,
    least: Mapping[str, int],
    size: float,
    rates: PartitionRates | None,
    *,
    is_moving: bool,
) -> SeenPartition:
    """`least`: min.insync.replicas by topic; `rates` is None if no load is known."""
    seen = SeenPartition(
        *place,
        row.replicas,
        row.isr,
        least.get(place[0], 1),
        size,
        bytes_in=None,
        is_moving=is_moving,
        has_leader=row.leader >= 0,
    )
    if rates is None:
        return seen
    return replace(
        seen,
        bytes_in=rates.bytes_in,
        bytes_out=rates.bytes_out or 0.0,
        leader_cpu=rates.leader_cpu or 0.0,
        follower_cpu=rates.follower_cpu or 0.0,
    )


def without_load(replicas: PlacedReplicas) -> list[SeenPartition]:
    """Return the partitions, without their load."""
    return [SeenPartition(*place, row.replicas, row.isr, 1, 0, None) for place, row in replicas.rows.items()]


def _rate(size: int, first: int | None, begin: int | None, end: int | None, seconds: float) -> float | None:
    """Return bytes per second: the offsets of the window, times the average size of an offset in the log."""
    if first is None or begin is None or end is None or seconds <= 0:
        return None
    return max(0, end - begin) * (size / (end - first) if end > first else 0.0) / seconds


def _ends(cluster: AskedCluster, places: Iterable[PartitionName], which: int) -> dict[PartitionName, int]:
    answers = log_offsets.found(cluster, dict.fromkeys(places, which))
    return {place: answer.offset for place, answer in answers.items() if isinstance(answer, TimedOffset)}


def _sizes(cluster: AskedCluster, brokers: Iterable[int]) -> dict[PartitionName, int]:
    """Return the size of the largest replica of each partition."""
    largest: dict[PartitionName, int] = {}
    for directories in replicas_on_disk.described(cluster, brokers).values():
        for replica in (one for directory in directories for one in directory.replicas if not one.is_future):
            place = (replica.topic, replica.partition)
            largest[place] = max(largest.get(place, 0), replica.size_bytes)
    return largest


def _min_isr(cluster: AskedCluster, names: Iterable[str]) -> Mapping[str, int]:
    answers = configs.described(cluster, [(ResourceKind.TOPIC, name) for name in names])
    return {
        resource[1]: int(one.value or 1)
        for resource, found in answers.items()
        for one in found
        if one.name == "min.insync.replicas"
    }


def directories(cluster: AskedCluster, after: Sequence[SeenPartition], alive: Iterable[int]) -> list[BrokerDirectory]:
    """Return the online directories of brokers that have at least two of them."""
    replicas = {(each.topic, each.number): each.replicas for each in after}
    found = []
    for broker, stored_in in replicas_on_disk.described(cluster, alive).items():
        online = [each for each in stored_in if each.error is None]
        if len(online) < 2:
            continue
        for each in online:
            stored = tuple(
                StoredReplica(one.topic, one.partition, broker, one.size_bytes, replicas[one.topic, one.partition])
                for one in each.replicas
                if not one.is_future and broker in replicas.get((one.topic, one.partition), ())
            )
            found.append(BrokerDirectory(broker, each.path, stored))
    return found
