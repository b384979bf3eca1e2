"""Reads partitions for a consumer, up to the high watermark or the last stable offset. With Fetch version 11 or newer a
consumer may also read from a follower (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.client_view.leader_hints import node_on_listener
from pykbroker.fetches.fetch_plan import RACKS_FROM, READ_COMMITTED
from pykbroker.fetches.partition_reads import NO_EPOCH, PartitionRead
from pykbroker.fetches.readable_topics import ReadableTopics
from pykbroker.replica.partition import Partition

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.fetch_plan import FetchPlan
    from pykbroker.replica.fetch_sessions import SessionPartition
    from pykbroker.replica.replica_traffic import PartitionTraffic
    from pykbroker_log.results import ReadResult


_CONSUMER: Final = -1


class ConsumerReader:
    """The reader of one fetch of a consumer (a Reader, see partition_reads.py)."""

    __slots__ = ("_committed", "_ctx", "_leader_only", "_may_read", "_rack", "_regions", "_traffic")

    def __init__(self, ctx: BrokerContext, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._committed = plan.request.isolation_level == READ_COMMITTED
        takes_racks = plan.version >= RACKS_FROM
        #: True for a consumer of an older version. Any replica answers a replica id below -1, which is for debugging.
        self._leader_only = not takes_racks and plan.replica_id == _CONSUMER
        #: the consumer's rack, or "" if the consumer is not sent to a replica in its rack
        self._rack = plan.request.rack_id if takes_racks and ctx.services.replicas.selects_by_rack else ""
        self._regions = ctx.peer.takes_regions
        self._may_read = ReadableTopics(ctx)
        self._traffic: list[tuple[PartitionTraffic, int]] | None = None

    def begin(self) -> None:
        self._traffic = None
        self._may_read.forget()

    def unchanged(self, entry: SessionPartition) -> Partition | None:
        return None

    def may_read(self, topic: str) -> bool:
        return self._may_read(topic)

    def read(
        self, into: PartitionRead, partition: Partition, limit: int, is_first: bool, wait: bool
    ) -> ReadResult | None:
        entry = into.entry
        epoch = max(NO_EPOCH, entry.current_leader_epoch)
        if self._leader_only:
            partition.require_leader(epoch)
        else:
            partition.require_epoch(epoch)
            if self._rack and self._is_elsewhere(into, partition):
                return None
        if entry.last_fetched_epoch > NO_EPOCH and into.diverges(partition):
            return None
        found = partition.read(
            entry.fetch_offset,
            limit,
            read_committed=self._committed,
            min_one=is_first,
            regions=self._regions,
            wait=wait,
        )
        if partition.traffic is not None and found.size:
            if self._traffic is None:
                self._traffic = []
            self._traffic.append((partition.traffic, found.size))
        return found

    def _is_elsewhere(self, into: PartitionRead, partition: Partition) -> bool:
        """Return True if the consumer should read from another replica in its rack. `into` then names that replica, and
        this leader reads nothing."""
        leader = partition.leader
        if leader is None:
            return False
        services, listener = self._ctx.services, self._ctx.listener_name

        def rack_of(broker_id: int) -> str | None:
            node = node_on_listener(services.metadata.image, broker_id, listener)
            return None if node is None else node.rack

        found = leader.preferred_replica(services.node_id, into.entry.fetch_offset, self._rack, rack_of)
        if found is None:
            return False
        into.preferred_replica = found
        into.log = partition.log
        return True

    def end(self) -> None:
        """Do nothing: a consumer's fetch does not move the high watermark."""

    def count(self, size: int) -> None:
        self._ctx.services.replicas.topic_metrics.bytes_out.value += size
        for traffic, read in self._traffic or ():
            traffic.read(read, by_follower=False)
