"""Offsets of partitions by their ends and by time, and the deletion of records before an offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import failed
from pykbroker.tools.cluster.leader_requests import Outcomes, of_leaders
from pykbroker.tools.cluster.reassignments import by_topic

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


def found(cluster: AskedCluster, wanted: Mapping[PartitionName, int]) -> Outcomes[TimedOffset]:
    """Return the offset of each partition at a timestamp in milliseconds, or at one of the constants above."""
    from pykbroker_wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
    )

    if not wanted:
        return {}
    least = max(_LEAST.get(timestamp, 1) for timestamp in wanted.values())

    def ask(node: int, places: list[PartitionName]) -> Outcomes[TimedOffset]:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=wanted[name, number]) for number in numbers
                ],
            )
            for name, numbers in by_topic(places).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=_TIMEOUT_MS)
        answer = cluster.ask(request, ListOffsetsResponse, node=node, least=least)
        return {
            (topic.name, row.partition_index): failed(row.error_code)
            if row.error_code
            else TimedOffset(row.offset, row.timestamp, row.leader_epoch)
            for topic in answer.topics
            for row in topic.partitions
        }

    return of_leaders(cluster, wanted, ask, raises=True)


def delete_before(cluster: AskedCluster, wanted: Mapping[PartitionName, int]) -> Outcomes[int]:
    """Delete the records before an offset (-1 for all); returns the new first offset of each partition."""
    from pykbroker_wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    def ask(node: int, places: list[PartitionName]) -> Outcomes[int]:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=number, offset=wanted[name, number]) for number in numbers
                ],
            )
            for name, numbers in by_topic(places).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=_TIMEOUT_MS)
        answer = cluster.ask(request, DeleteRecordsResponse, node=node)
        return {
            (topic.name, row.partition_index): failed(row.error_code) if row.error_code else row.low_watermark
            for topic in answer.topics
            for row in topic.partitions
        }

    return of_leaders(cluster, wanted, ask)
