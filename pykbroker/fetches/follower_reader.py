"""Reads partitions for a follower, from the leader, up to the log end. A fetch also proves to the leader that the
follower has all records before its fetch offset.

Only the first pass of a fetch is a proof. Later passes, while the fetch waits, have the same fetch offsets, so they
prove nothing new. A throttled replica that is not in sync gets nothing while the leader's quota is exceeded
(replica/quota.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykbroker.fetches.partition_reads import NO_EPOCH, PartitionRead
from pykbroker.replica.partition import Partition
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource

if TYPE_CHECKING:
    from pykbroker.dispatch.context import BrokerContext
    from pykbroker.fetches.fetch_plan import FetchPlan
    from pykbroker.replica.fetch_sessions import SessionPartition
    from pykbroker.replica.replica_traffic import PartitionTraffic
    from pykbroker_log.results import ReadResult


class _Proof(NamedTuple):
    """A proof that the follower has all records of this partition before its fetch offset."""

    partition: Partition
    entry: SessionPartition
    #: the end offset of the leader's log when it was read
    leader_end: int


class FollowerReader:
    """The reader of one fetch of a follower (a Reader, see partition_reads.py)."""

    __slots__ = (
        "_broker_epoch",
        "_ctx",
        "_is_proved",
        "_may_read",
        "_proofs",
        "_regions",
        "_replica_id",
        "_throttled_bytes",
        "_traffic",
    )

    def __init__(self, ctx: BrokerContext, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._replica_id = plan.replica_id
        self._broker_epoch = plan.request.replica_state.replica_epoch
        self._regions = ctx.peer.takes_regions
        self._may_read: bool | None = None
        #: True after the proofs of this fetch were passed to the leaders
        self._is_proved = False
        self._proofs: list[_Proof] = []
        self._throttled_bytes = 0
        self._traffic: list[tuple[PartitionTraffic, int]] = []

    def begin(self) -> None:
        self._may_read = None
        self._proofs = []
        self._throttled_bytes = 0
        self._traffic = []

    def unchanged(self, entry: SessionPartition) -> Partition | None:
        """Return the partition if the follower is at the end of its log and has got its high watermark and its log
        start offset. Otherwise return None."""
        partition = entry.partition
        if partition is None or entry.topic is None or entry.verified_epoch != partition.leader_epoch:
            return None
        leader, log = partition.leader, partition.log_if_open
        if (
            leader is None
            or log is None
            or entry.fetch_offset != log.log_end_offset
            or entry.sent_high_watermark != log.high_watermark
            or entry.sent_log_start_offset != log.log_start_offset
            or not leader.has_follower(self._replica_id, self._broker_epoch)
            or not self.may_read(entry.topic)
        ):
            return None
        if not self._is_proved:
            self._proofs.append(_Proof(partition, entry, entry.fetch_offset))
        return partition

    def may_read(self, topic: str) -> bool:
        """Return True if the client may fetch as a replica: only brokers may (CVE-2018-1288)."""
        if self._may_read is None:
            self._may_read = self._ctx.authorize(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
        return self._may_read

    def read(
        self, into: PartitionRead, partition: Partition, limit: int, is_first: bool, wait: bool
    ) -> ReadResult | None:
        entry = into.entry
        leader = partition.require_leader(max(NO_EPOCH, entry.current_leader_epoch))
        names_epoch = entry.current_leader_epoch > NO_EPOCH
        leader.require_follower(self._replica_id, self._broker_epoch, names_epoch=names_epoch)
        if entry.last_fetched_epoch > NO_EPOCH and into.diverges(partition):
            return None
        quota = self._ctx.services.replicas.quotas.leader
        is_throttled = quota.is_used and quota.is_throttled(partition.topic, partition.index)
        # A replica in the ISR always gets records, because a throttle must not shrink the ISR.
        if is_throttled and self._replica_id not in leader.isr.committed and quota.is_exceeded():
            limit, is_first = 0, False
        found = partition.read_for_follower(
            entry.fetch_offset, limit, min_one=is_first, regions=self._regions, wait=wait
        )
        if is_throttled:
            self._throttled_bytes += found.size
        if partition.traffic is not None and found.size:
            self._traffic.append((partition.traffic, found.size))
        entry.verified_epoch = leader.leader_epoch
        if not self._is_proved:
            self._proofs.append(_Proof(partition, entry, partition.log.log_end_offset))
        return found

    def end(self) -> None:
        """Pass the proofs to the leaders when every partition was read. A leader may then commit records, for which
        other requests wait. The answer has the high watermark after these commits, so the follower gets it one fetch
        earlier than in Apache Kafka."""
        if self._is_proved:
            return
        self._is_proved = True
        for partition, entry, leader_end in self._proofs:
            partition.note_fetched(
                self._replica_id,
                entry.fetch_offset,
                leader_end=leader_end,
                log_start_offset=entry.log_start_offset,
                broker_epoch=self._broker_epoch,
            )

    def count(self, size: int) -> None:
        replicas = self._ctx.services.replicas
        if self._throttled_bytes:
            replicas.quotas.leader.record(self._throttled_bytes)
        replicas.topic_metrics.replication_bytes_out.value += size
        for traffic, read in self._traffic:
            traffic.read(read, by_follower=True)
