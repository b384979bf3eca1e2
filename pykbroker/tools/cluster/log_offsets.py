"""Offsets of partitions by their ends and by time, and the deletion of records before an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed, failed
from pykbroker.tools.cluster.reassignments import by_topic
from pykbroker_wire.errors import ErrorCode

#: Values that stand for a timestamp in a request.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: The oldest version of ListOffsets that has each of these values; every version has the others.
_LEAST: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_TIMEOUT_MS: Final = 30_000


@dataclass(slots=True, frozen=True)
class TimedOffset:
    #: -1 if there is none
    offset: int
    #: milliseconds; -1 if the request had no time
    timestamp: int = -1
    leader_epoch: int = -1


def found(cluster: AskedCluster, wanted: Mapping[PartitionName, int]) -> dict[PartitionName, TimedOffset | AskFailed]:
    """Return the offset of each partition at a timestamp in milliseconds, or at one of the constants above."""
    from pykbroker.tools.cluster.topics import leaders
    from pykbroker_wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    if not wanted:
        return {}
    least = max(_LEAST.get(timestamp, 1) for timestamp in wanted.values())

    def attempt() -> dict[PartitionName, TimedOffset | AskFailed]:
        told: dict[PartitionName, TimedOffset | AskFailed] = {}
        led, told_of = by_leader(leaders(cluster, {name for name, _ in wanted}), wanted)
        told |= told_of
        for node, partitions in led.items():
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=wanted[name, number])
                        for number in numbers
                    ],
                )
                for name, numbers in by_topic(partitions).items()
            ]
            request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=_TIMEOUT_MS)
            for topic in cluster.ask(request, ListOffsetsResponse, node=node, least=least).topics:
                for row in topic.partitions:
                    if row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        raise failed(row.error_code)
                    told[topic.name, row.partition_index] = (
                        failed(row.error_code)
                        if row.error_code
                        else TimedOffset(row.offset, row.timestamp, row.leader_epoch)
                    )
        return told

    return cluster.settled(attempt)


def delete_before(cluster: AskedCluster, wanted: Mapping[PartitionName, int]) -> dict[PartitionName, int | AskFailed]:
    """Delete the records before an offset (-1 for all); returns the new first offset of each partition."""
    from pykbroker.tools.cluster.topics import leaders
    from pykbroker_wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    led, told_of = by_leader(leaders(cluster, {name for name, _ in wanted}), wanted)
    told: dict[PartitionName, int | AskFailed] = {**told_of}
    for node, partitions in led.items():
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=wanted[name, number]) for number in numbers
                ],
            )
            for name, numbers in by_topic(partitions).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
        for topic in cluster.ask(request, DeleteRecordsResponse, node=node).topics:
            for row in topic.partitions:
                told[topic.name, row.partition_index] = failed(row.error_code) if row.error_code else row.low_watermark
    return told


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
