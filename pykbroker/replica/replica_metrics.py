"""The gauges of Kafka's ReplicaManager and Partition about this node's replicas, computed when they are read.

Not responsible for the counters of bytes and ISR changes, which other modules increment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.replica.leader import PartitionLeader
    from pykbroker.replica.partition import Partition
    from pykbroker_log.partition_log import PartitionLog

_MANAGER = "kafka.server:type=ReplicaManager,name="


def register(metrics: Metrics, replicas: Iterable[Partition], parked: Callable[[], int]) -> None:
    """Register every gauge of these replicas. A gauge iterates over `replicas` each time that it is read. `parked`
    returns the number of fetches that wait, without those of share groups."""
    metrics.gauge(
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Fetch",
        parked,
    )
    metrics.gauge(_MANAGER + "PartitionCount", lambda: sum(1 for _ in replicas))
    metrics.gauge(_MANAGER + "LeaderCount", lambda: sum(p.is_leader for p in replicas))
    metrics.gauge(_MANAGER + "OfflineReplicaCount", lambda: sum(p.offline for p in replicas))
    metrics.gauge(_MANAGER + "UnderReplicatedPartitions", lambda: sum(map(_is_under_replicated, replicas)))
    metrics.gauge(_MANAGER + "UnderMinIsrPartitionCount", lambda: sum(map(_is_under_min_isr, replicas)))
    metrics.gauge(_MANAGER + "AtMinIsrPartitionCount", lambda: sum(map(_is_at_min_isr, replicas)))
    metrics.family(lambda: _of_partitions(replicas))


def _led(partition: Partition) -> tuple[PartitionLeader, PartitionLog] | None:
    """Return the role and the log of a partition that this node leads and whose log is open, else None."""
    leader, log = partition.leader, partition.log_if_open
    return None if leader is None or log is None else (leader, log)


def _is_under_replicated(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and leader.is_under_replicated


def _is_under_min_isr(partition: Partition) -> bool:
    led = _led(partition)
    return led is not None and not led[0].has_enough_replicas(led[1].config.min_insync_replicas)


def _is_at_min_isr(partition: Partition) -> bool:
    led = _led(partition)
    return led is not None and led[0].is_at_min_isr(led[1].config.min_insync_replicas)


def _of_partitions(replicas: Iterable[Partition]) -> Iterator[tuple[str, float]]:
    # Partitions come and go while the caller pauses.
    for partition in list(replicas):
        leader, log = partition.leader, partition.log_if_open
        suffix = f",topic={partition.topic},partition={partition.index}"
        numbers = {
            "UnderReplicated": _is_under_replicated(partition),
            "InSyncReplicasCount": 0 if leader is None else len(leader.isr.committed),
            "UnderMinIsr": _is_under_min_isr(partition),
            "AtMinIsr": _is_at_min_isr(partition),
            "ReplicasCount": 0 if leader is None else leader.wanted_replicas,
            "LastStableOffsetLag": 0 if log is None else log.high_watermark - log.last_stable_offset,
        }
        for name, number in numbers.items():
            yield f"kafka.cluster:type=Partition,name={name}{suffix}", int(number)
