"""The records that one ShareFetch acquires, partition by partition, and the batches that have them.

Responsible for the number of records of the whole request, for the part of each read that the client gets, and for
acquisitions that are never sent: they are given back. Not responsible for reading, nor for the locks (share_leaders/).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from pykbroker.fetches.share_fetch_plan import RECORD_LIMIT
from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
from pykbroker_log.fetched_batches import part_of
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.fetches.share_fetch_plan import ShareFetchPlan
    from pykbroker.fetches.share_reader import AcquirableBatches
    from pykbroker.replica.broker_topic_metrics import BrokerTopicMetrics
    from pykbroker.replica.partition import Partition
    from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader
    from pykbroker.share_partitions.share_sessions import SessionPartitionId
    from pykbroker_log.slices import Slice


class AnsweredPartition:
    """One partition of an answer: an error, or what was acquired of it, which may be nothing."""

    __slots__ = ("acquired", "error", "leader", "named", "partition", "records", "size")

    def __init__(self, named: SessionPartitionId, error: ErrorCode) -> None:
        self.named = named
        self.error = error
        #: the leader that gave the locks; None if nothing was acquired
        self.leader: SharePartitionLeader | None = None
        self.partition: Partition | None = None
        self.acquired: list[AcquiredRange] = []
        self.records: list[Slice] = []
        #: the number of bytes in `records`
        self.size = 0


class ShareAcquisitions:
    """The partitions of one answer, in the order in which they were read."""

    __slots__ = ("_left", "_plan", "parts")

    def __init__(self, plan: ShareFetchPlan) -> None:
        self._plan = plan
        self._left = plan.request.max_records
        self.parts: list[AnsweredPartition] = []

    def add(self, named: SessionPartitionId, error: ErrorCode, read: AcquirableBatches | None) -> None:
        """Add a partition, and acquire records of it. `read` is None if the partition has nothing to acquire."""
        part = AnsweredPartition(named, error)
        self.parts.append(part)
        if read is None or self._left <= 0:
            return
        request, batches = self._plan.request, read.batches
        acquired = read.leader.acquire(
            Acquire(
                self._plan.member.member,
                read.fetch_offset,
                [(batch.first_offset, batch.last_offset) for batch in batches],
                self._left,
                request.batch_size,
                limits_records=request.share_acquire_mode == RECORD_LIMIT,
                aborted=read.aborted,
            )
        )
        if not acquired:
            return
        part.leader, part.partition, part.acquired = read.leader, read.partition, acquired
        # The client gets whole batches, from the first that has acquired records to the last. It filters them.
        first = max(0, bisect_right(batches, acquired[0].first, key=lambda batch: batch.first_offset) - 1)
        last = bisect_left(batches, acquired[-1].last + 1, key=lambda batch: batch.first_offset) - 1
        part.records = [part_of(read.result.slices[0], batches[first].position, batches[last].end)]
        part.size = batches[last].end - batches[first].position
        self._left -= sum(each.last - each.first + 1 for each in acquired)

    def give_back(self) -> None:
        """Give back everything, because the answer is not sent."""
        for part in self.parts:
            leader, acquired = part.leader, part.acquired
            part.leader, part.acquired, part.records, part.size = None, [], [], 0
            if leader is not None:
                leader.give_back(self._plan.member.member, acquired)

    def count(self, metrics: BrokerTopicMetrics) -> None:
        """Count the bytes of the answer, for the broker and for each partition."""
        for part in self.parts:
            if part.size and part.partition is not None:
                metrics.bytes_out.value += part.size
                if part.partition.traffic is not None:
                    part.partition.traffic.read(part.size, by_follower=False)
