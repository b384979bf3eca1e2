"""Reads partitions for a member of a share group, from the first offset that it may acquire.

Responsible for what a later acquisition needs: the leader of each share partition, and the batches that were read.
Nothing is acquired here, because a read that needs the device begins again (`ColdRead`). Only the start of a share
partition follows the start of its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.fetches.partition_reads import PartitionRead
from pykbroker.fetches.readable_topics import ReadableTopics
from pykbroker_log.fetched_batches import FetchedBatch, aborted_ranges, batches_of
from pykbroker_log.log_config import StorageError
from pykbroker_log.results import ReadResult
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import CorruptBatch

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.share_fetch_plan import ShareFetchPlan
    from pykbroker.replica.fetch_sessions import SessionKey, SessionPartition
    from pykbroker.replica.partition import Partition
    from pykbroker.share_leaders.share_partition_leader import SharePartitionLeader

#: The most batches that one pass looks at. With batches of one record each, this takes about 20 ms. Other batches come
#: with the next request, because partitions that had records then go last.
MOST_BATCHES: Final = 20_000
_NOTHING: Final = ReadResult([], 0, 0, 0, -1)


class AcquirableBatches:
    """The records that were read of one partition. The read began at `fetch_offset`. `batches` are the first of them,
    as many as the member may acquire; `aborted` are the offsets of those that belong to aborted transactions."""

    __slots__ = ("aborted", "batches", "fetch_offset", "leader", "partition", "result")

    def __init__(
        self,
        leader: SharePartitionLeader,
        partition: Partition,
        fetch_offset: int,
        result: ReadResult,
        batches: list[FetchedBatch],
    ) -> None:
        self.leader = leader
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.result = result
        self.batches = batches
        self.aborted = aborted_ranges(batches, result.aborted)


class ShareReader:
    """The reader of one ShareFetch (a Reader, see partition_reads.py)."""

    __slots__ = (
        "_batches_left",
        "_ctx",
        "_may_read",
        "_plan",
        "_regions",
        "acquirable",
        "leaders",
        "reads",
    )

    def __init__(self, ctx: BrokerContext, plan: ShareFetchPlan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._regions = ctx.peer.takes_regions
        self._may_read = ReadableTopics(ctx)
        self._batches_left = MOST_BATCHES
        #: The leaders that the first pass has found. A leader that fails or ends while the fetch waits still has its
        #: error here, when another has taken its place in the broker.
        self.leaders: dict[SessionKey, SharePartitionLeader] = {}
        self.reads: dict[SessionKey, AcquirableBatches] = {}
        #: the number of partitions of which the last pass could acquire records, if their logs have them
        self.acquirable = 0

    def begin(self) -> None:
        self._may_read.forget()
        self.reads = {}
        self.acquirable = 0
        self._batches_left = MOST_BATCHES

    def unchanged(self, entry: SessionPartition) -> Partition | None:
        return None

    def may_read(self, topic: str) -> bool:
        return self._may_read(topic)

    def read(
        self, into: PartitionRead, partition: Partition, limit: int, is_first: bool, wait: bool
    ) -> ReadResult | None:
        if not self._plan.wants_records:
            return _NOTHING
        leader = self.leaders.get(into.key)
        if leader is None:
            leader = self._ctx.services.share_leaders.leader_of(self._plan.member.group, partition)
            self.leaders[into.key] = leader
        if leader.error:
            raise KafkaError(leader.error)
        if not leader.can_acquire():
            return _NOTHING
        offset = leader.machine.next_fetch_offset
        log = partition.log
        if offset < log.log_start_offset:
            # As in Apache Kafka, this answer has no records of the partition.
            leader.log_start_moved(log.log_start_offset)
            return None
        self.acquirable += 1
        if offset >= log.log_end_offset:
            # After an unclean election the log may end before it. The records that come there are new.
            return _NOTHING
        result = partition.read(
            offset,
            limit,
            read_committed=leader.read_committed,
            min_one=is_first,
            regions=self._regions,
            wait=wait,
        )
        if result.size:
            batches = self._batches(leader, partition, offset, result, wait)
            if batches:
                self.reads[into.key] = AcquirableBatches(leader, partition, offset, result, batches)
        return result

    def _batches(
        self, leader: SharePartitionLeader, partition: Partition, offset: int, result: ReadResult, wait: bool
    ) -> list[FetchedBatch]:
        """Return the batches of a read that the member may acquire. Later ones are not looked at."""
        most = min(self._plan.request.max_records, leader.limits.record_locks)
        end = max(offset, leader.machine.end_offset + 1) + most
        found: list[FetchedBatch] = []
        try:
            for batch in batches_of(result, wait=wait):
                if not found:
                    # Compaction can leave a hole before the first batch that is larger than any limit.
                    end = max(end, batch.first_offset + most)
                if batch.first_offset >= end or self._batches_left <= 0:
                    break
                self._batches_left -= 1
                found.append(batch)
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        except OSError as error:
            raise partition.storage_failed(StorageError(partition.log.files.log_dir, error)) from error
        return found

    def end(self) -> None:
        """Do nothing: the caller acquires after it has decided to answer."""

    def count(self, size: int) -> None:
        """Do nothing: the bytes of an answer are known after the acquisition, and are counted then."""
