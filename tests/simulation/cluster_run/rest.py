"""After the faults the cluster must come to rest by itself within a time.

Responsible for the meaning of "at rest", and for reporting what is missing if it is not reached. Each goal is a
function that returns what is missing now, or None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from pykbroker.metadata.image import PartitionImage
from pykbroker.replica.partition import Partition
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from pykbroker_worlds.simulated.sim_broker import SimBroker
from pykbroker_worlds.simulated.sim_cluster import SimCluster
from tests.simulation.rebuilt import fresh_producers_agree


class NotAtRest(AssertionError):
    """The cluster did not come to rest in time; the message contains what is missing."""


async def wait_for(cluster: SimCluster, what: str, missing: Callable[[], object | None], seconds: float) -> None:
    """Wait until nothing is missing. Raises NotAtRest."""
    loop = cluster.world.loop
    end = loop.time() + seconds
    while (found := missing()) is not None:
        if loop.time() > end:
            raise NotAtRest(f"{what}: not within {seconds:g} s: {found}")
        await asyncio.sleep(0.1)
    cluster.world.tell("rest", what)


def members(cluster: SimCluster, without: Collection[int]) -> object | None:
    if cluster.is_whole(without):
        return None
    return {number: node.what_it_sees() for number, node in cluster.nodes.items()}


def partitions(cluster: SimCluster, without: Collection[int]) -> object | None:
    """Every partition has a leader, all replicas that can be are in its ISR, and none is being moved."""
    live = [node for node in cluster.brokers.values() if node.number not in without]
    image = live[0].node.loader.image
    if any(node.node.loader.image.offset != image.offset for node in live):
        return "images differ"
    for topic in image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            if set(_electable(partition)) <= set(without):
                # Only a dead node has it.
                continue
            wanted = [replica for replica in partition.replicas if replica not in without]
            if partition.leader not in wanted or sorted(partition.isr) != sorted(wanted):
                return f"{topic.name}-{index}: {partition}"
            if (partition.adding_replicas or partition.removing_replicas) and not without:
                return f"{topic.name}-{index} is being moved: {partition}"
    return None


def _electable(partition: PartitionImage) -> list[int]:
    return [*partition.isr, *partition.elr]


def only_dead_has(cluster: SimCluster, dead: SimBroker) -> object | None:
    """Find a partition that no other broker can lead."""
    for node in cluster.brokers.values():
        if node is dead or not node.up:
            continue
        for topic in node.node.loader.image.topics.by_name.values():
            for index, partition in topic.partitions.items():
                if len(partition.replicas) > 1 and set(_electable(partition)) <= {dead.number}:
                    return f"{topic.name}-{index}"
    return None


def replicas(cluster: SimCluster, without: Collection[int]) -> object | None:
    """All replicas of a partition have the same bytes, and know that all of them are committed."""
    live = [node for node in cluster.brokers.values() if node.number not in without]
    for topic in live[0].node.loader.image.topics.by_name.values():
        for index in topic.partitions:
            copies = list(_copies(live, topic.name, index))
            logs = [partition.log_if_open for _, partition in copies]
            if not any(log is not None and log.log_end_offset for log in logs):
                continue
            ends = {
                number: None if partition.log_if_open is None else _ends(partition.log) for number, partition in copies
            }
            if len(set(ends.values())) != 1:
                return f"{topic.name}-{index}: (end, high watermark, last stable offset) by broker: {ends}"
            end, high_watermark, stable = next(iter(ends.values())) or (0, 0, 0)
            if not end == high_watermark == stable:
                return f"{topic.name}-{index}: {ends}"
    return None


def nothing_hangs(cluster: SimCluster) -> Iterator[str]:
    """T7: at this time no transaction is open in any log."""
    for node in cluster.brokers.values():
        for partition in node.led() if node.up else ():
            log = partition.log_if_open
            for producer_id, entry in log.producers.entries.items() if log is not None else ():
                if entry.txn_first_offset >= 0:
                    yield f"{partition}: the transaction of producer {producer_id} at {entry.txn_first_offset} is open"


def _copies(live: list[SimBroker], topic: str, index: int) -> Iterator[tuple[int, Partition]]:
    for node in live:
        for partition in node.node.services.replicas:
            if (partition.topic, partition.index) == (topic, index):
                yield node.number, partition


def _ends(log: PartitionLog) -> tuple[int, int, int]:
    return log.log_end_offset, log.high_watermark, log.last_stable_offset


def check_equal(cluster: SimCluster, without: Collection[int]) -> None:
    """P13, T9: the bytes are equal, and so is what each log knows of its producers. Compacted logs, which each node
    compacts separately, are compared record by record, at the offsets that both have. A log keeps producers whose
    records were deleted, so only logs that have all records are read anew."""
    live = [node for node in cluster.brokers.values() if node.number not in without]
    for topic in live[0].node.loader.image.topics.by_name.values():
        for index in topic.partitions:
            first: tuple[int, PartitionLog] | None = None
            for number, partition in _copies(live, topic.name, index):
                log = partition.log_if_open
                if log is None:
                    continue
                if not log.log_start_offset:
                    fresh_producers_agree(log)
                if first is None:
                    first = number, log
                difference = _difference(first[1], log, is_compacted=topic.name.startswith("__"))
                assert not difference, f"{topic.name}-{index}: brokers {first[0]} and {number} differ: {difference}"


def _difference(left: PartitionLog, right: PartitionLog, *, is_compacted: bool) -> str:
    if is_compacted:
        ours, theirs = _records(left), _records(right)
        for offset in sorted(ours.keys() & theirs.keys()):
            if ours[offset] != theirs[offset]:
                return f"at {offset} {ours[offset]} and {theirs[offset]}"
        return ""
    # A leader that dies in a DeleteRecords may be the only one that has moved its log start.
    start = max(left.log_start_offset, right.log_start_offset)
    batches = list(_batches(left, start)), list(_batches(right, start))
    for one, other in zip(*batches, strict=False):
        if one != other:
            return f"{next(iter_batches(one))[1]} and {next(iter_batches(other))[1]}"
    return "" if len(batches[0]) == len(batches[1]) else f"{len(batches[0])} and {len(batches[1])} batches"


def _batches(log: PartitionLog, offset: int) -> Iterator[bytes]:
    """Yield the batches from the one that contains `offset`."""
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset).joined()
        if not data:
            return
        for position, header in iter_batches(data):
            yield data[position : position + header.size_in_bytes]
            offset = header.next_offset


def _records(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    found: dict[int, tuple[object, ...]] = {}
    for batch in _batches(log, log.log_start_offset):
        for position, header in iter_batches(batch):
            for record in iter_records(batch, position, header):
                found[record.offset] = (header.producer_id, header.is_control, record.key, record.value)
    return found
