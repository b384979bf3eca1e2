"""The leader's view of its partition: the replica set, the ISR, and the progress of each follower; pure.

Responsible for the effect of a follower's fetch, for the offset up to which the log is committed, and for followers
that join or leave the ISR. It also computes the number of replicas that acks=all needs, and the low watermark. Not
responsible for the log (partition.py), for requests that wait (commit.py, low_watermark.py), nor for asking the
controller about the ISR (isr_updates.py).

The high watermark follows Kafka's rule (KIP-966). It stands still while the ISR is smaller than min.insync.replicas. It
also waits for followers outside the ISR that keep up and may join the ISR. Without this wait, a follower that lags only
a little could never reach the high watermark, and so never join.

Invariants:
* A follower that has not fetched from this leader has proved nothing.
* A leader without followers is alone (`is_alone`). An append then needs no call of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pykbroker.metadata.image import RECOVERED, BrokerImage, PartitionImage
from pykbroker.replica.isr import Isr, PendingIsr
from pykbroker.replica.progress import ANY_EPOCH, FollowerFetch, FollowerProgress
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.alter_partition import BrokerState, RequestPartitionData


@dataclass(slots=True, frozen=True)
class Judgement:
    """The rules that all leaders of a node apply to their followers."""

    node_id: int
    #: replica.lag.time.max.ms
    max_lag_ms: int
    #: returns a broker's registration in the newest metadata, or None
    broker: Callable[[int], BrokerImage | None]

    def may_join(self, follower: FollowerProgress) -> bool:
        """Return True if the controller would accept the follower in an ISR: its broker is not fenced, is not in
        controlled shutdown, and has the broker epoch of the fetch (KIP-903)."""
        broker = self.broker(follower.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and follower.broker_epoch is not None
            and follower.broker_epoch in (ANY_EPOCH, broker.epoch)
        )

    def is_over(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if the broker has registered again since this broker epoch."""
        if broker_epoch == ANY_EPOCH:
            return False
        broker = self.broker(broker_id)
        return broker is not None and not broker.fenced and broker.epoch > broker_epoch

    def is_alive(self, broker_id: int) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and not broker.fenced

    def epoch_of(self, broker_id: int) -> int:
        broker = self.broker(broker_id)
        return ANY_EPOCH if broker is None else broker.epoch


class PartitionLeader:
    """The leader role in one leader epoch."""

    __slots__ = ("_adding", "_followers", "_judgement", "is_alone", "isr", "leader_epoch", "replicas", "start_offset")

    def __init__(self, judgement: Judgement, image: PartitionImage, before: PartitionLeader | None = None) -> None:
        """`before` is set if this broker was also the leader in the previous leader epoch, so that its log has
        continued. Then the known progress of the followers still holds. After any other leader they might have cut
        their logs."""
        self._judgement = judgement
        self.leader_epoch: int = image.leader_epoch
        #: the end of the log when the epoch began; None while the log has not been opened
        self.start_offset: int | None = None
        # One for each other broker of `replicas`, and no more.
        self._followers: dict[int, FollowerProgress] = {} if before is None else before._followers
        #: its partition epoch is the newest that this broker has received
        self.isr = Isr(image.isr, image.partition_epoch)
        self._set_replicas(image)

    def change(self, image: PartitionImage) -> None:
        """Take the metadata's replica set and ISR in the same leader epoch."""
        isr = self.isr
        if image.partition_epoch < isr.partition_epoch:
            return  # the controller has answered with a newer one already
        if image.partition_epoch > isr.partition_epoch:
            isr.settle(image.isr, image.partition_epoch)
        elif isr.pending is not None and not set(isr.pending.replicas) <= set(image.replicas):
            # The controller's last answer had this partition epoch, but not the new replica set. The change in flight
            # contains a replica that was removed, so the controller certainly refuses it.
            isr.withdraw()
        # In every other case a change stays in flight. It is based on this partition epoch, so the controller may still
        # make it.
        self._set_replicas(image)

    def _set_replicas(self, image: PartitionImage) -> None:
        #: the replica set of the newest metadata, with this broker; the first is the preferred leader
        self.replicas = image.replicas
        # The replicas that a reassignment adds. They are in `replicas` too, and do not count in `wanted_replicas`.
        self._adding = image.adding_replicas
        followers = [replica for replica in image.replicas if replica != self._judgement.node_id]
        self._followers = {replica: self._followers.get(replica) or FollowerProgress(replica) for replica in followers}
        #: True if there are no followers. Records are then committed when they are written, unless they owe a flush.
        self.is_alone = not followers

    def begin(self, log_end_offset: int, steady_ms: int) -> None:
        """Begin the epoch at the log's end, as soon as the log can be used. Only the first call has an effect."""
        if self.start_offset is None:
            self.start_offset = log_end_offset
            for follower in self._followers.values():
                in_sync = follower.broker_id in self.isr.committed
                follower.begin_epoch(log_end_offset, steady_ms, in_sync=in_sync)

    # -- what followers prove -----------------------------------------------------------------------------------------

    def has_follower(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if the broker is a follower, and has not registered again since this broker epoch."""
        return replica_id in self._followers and not self._judgement.is_over(replica_id, broker_epoch)

    def require_follower(self, replica_id: int, broker_epoch: int, *, names_epoch: bool) -> None:
        """Raise KafkaError for a broker that is not a follower, or that has registered again since this broker epoch.
        `names_epoch`: the request names this leader epoch."""
        if replica_id not in self._followers:
            # A broker that names this epoch has newer metadata, for example about a reassignment. UNKNOWN_LEADER_EPOCH
            # lets it ask again.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {replica_id} is not one of its replicas")
        if self._judgement.is_over(replica_id, broker_epoch):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} has a newer broker epoch than {broker_epoch}"
            )

    def note(self, fetch: FollowerFetch) -> bool:
        """Record the progress that a follower's fetch proves. Return True if the follower's end offset has changed."""
        follower = self._followers.get(fetch.replica_id)
        return follower is not None and follower.note(fetch)

    def committed(self, end_offset: int, steady_ms: int) -> int:
        """Return the offset up to which the log is committed, if the ISR is large enough. It is the lowest end offset
        in the maximal ISR and among the followers that keep up and may join. `end_offset` is the leader's."""
        lowest = end_offset
        maximal = self.isr.maximal
        for follower in self._followers.values():
            if follower.end_offset < lowest and (
                follower.broker_id in maximal or self._is_awaited(follower, end_offset, steady_ms)
            ):
                lowest = follower.end_offset
        return lowest

    def _is_awaited(self, follower: FollowerProgress, end_offset: int, steady_ms: int) -> bool:
        judgement = self._judgement
        return follower.is_caught_up(end_offset, steady_ms, judgement.max_lag_ms) and judgement.may_join(follower)

    def preferred_replica(
        self, leader_id: int, offset: int, rack: str, rack_of: Callable[[int], str | None]
    ) -> int | None:
        """Return the broker from which a consumer in `rack` should read at `offset`, or None for this leader, as Apache
        Kafka's RackAwareReplicaSelector does (KIP-392). `rack_of` returns None for a broker that the consumer cannot
        reach. A consumer asks its leader again after metadata.max.age.ms, or when the follower does not have the
        offset."""
        if rack_of(leader_id) == rack:
            return None
        near = [follower for follower in self.readable(offset) if rack_of(follower.broker_id) == rack]
        if not near:
            return None
        best = max(near, key=lambda follower: (follower.end_offset, follower.caught_up_ms, follower.broker_id))
        return best.broker_id

    def readable(self, offset: int) -> Iterator[FollowerProgress]:
        """Yield the followers from which a consumer may read at `offset`. Followers outside the ISR are left out: such
        a follower may lag more and more, and a consumer that reads from it would never catch up."""
        for follower in self._followers.values():
            if follower.log_start_offset <= offset <= follower.end_offset and follower.broker_id in self.isr.committed:
                yield follower

    def largest_lag(self, log_start_offset: int, end_offset: int) -> int | None:
        """Return the number of records that the slowest follower lacks, or None without followers. A follower that has
        not fetched from this leader yet counts as lacking the whole log."""
        ends = [each.end_offset if each.end_offset >= 0 else log_start_offset for each in self._followers.values()]
        return max(0, end_offset - min(ends)) if ends else None

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of the replicas whose brokers are not fenced. `log_start_offset` is the
        leader's."""
        lowest = log_start_offset
        for follower in self._followers.values():
            if follower.log_start_offset < lowest and self._judgement.is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        return lowest

    # -- the ISR ------------------------------------------------------------------------------------------------------

    def expansion(self, replica_id: int, high_watermark: int) -> PendingIsr | None:
        """Propose that a follower joins the ISR, if it may. The follower must have all records below the high
        watermark, and must have reached the start of this leader epoch. Below that start, records above the high
        watermark may be committed too, and the follower may lack them."""
        follower = self._followers.get(replica_id)
        start = self.start_offset
        if (
            follower is None
            or start is None
            or self.isr.pending is not None
            or replica_id in self.isr.committed
            or follower.end_offset < max(high_watermark, start)
            or not self._judgement.may_join(follower)
        ):
            return None
        return self.isr.propose_expansion(replica_id)

    def shrinking(self, end_offset: int, steady_ms: int) -> PendingIsr | None:
        """Propose that the followers that have not kept up for replica.lag.time.max.ms leave the ISR."""
        if self.isr.pending is not None:
            return None
        leaving = [follower.broker_id for follower in self._out_of_sync(end_offset, steady_ms)]
        return self.isr.propose_shrinking(leaving) if leaving else None

    def _out_of_sync(self, end_offset: int, steady_ms: int) -> Iterable[FollowerProgress]:
        max_lag_ms = self._judgement.max_lag_ms
        for replica, follower in self._followers.items():
            if replica in self.isr.committed and not follower.is_caught_up(end_offset, steady_ms, max_lag_ms):
                yield follower

    def request_for(self, index: int, change: PendingIsr) -> RequestPartitionData:
        """Return the request to the controller. It contains the broker epoch of each replica as this leader knows it,
        so that the controller refuses a broker that has restarted since."""
        return RequestPartitionData(
            partition_index=index,
            leader_epoch=self.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=replica, broker_epoch=self._epoch_seen(replica)) for replica in change.replicas
            ],
            # A leader counts as recovered, because from now on its log decides which records exist (KIP-704).
            leader_recovery_state=RECOVERED,
            partition_epoch=change.partition_epoch,
        )

    def _epoch_seen(self, replica: int) -> int:
        if replica == self._judgement.node_id:
            return self._judgement.epoch_of(replica)
        follower = self._followers.get(replica)
        return ANY_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def describe(self, replica: int) -> str:
        """Return a follower's progress as text for the log."""
        follower = self._followers[replica]
        return f"broker {replica} (end offset {follower.end_offset})"

    # -- how many are in sync -----------------------------------------------------------------------------------------

    def min_isr(self, configured: int) -> int:
        """Return the number of replicas that acks=all needs: min.insync.replicas, but at most as many as the partition
        has."""
        return min(configured, len(self.replicas))

    def has_enough_replicas(self, configured: int) -> bool:
        """Return True if as many replicas are in sync as acks=all needs. `configured` is min.insync.replicas."""
        # The configured number is compared first: this is cheap, and True for nearly all appends.
        in_sync = len(self.isr.committed)
        return in_sync >= configured or in_sync >= self.min_isr(configured)

    def had_enough_replicas(self, configured: int) -> bool:
        """Return True if at least as many replicas as acks=all needs have the committed records."""
        return len(self.isr.maximal) >= self.min_isr(configured)

    def is_at_min_isr(self, configured: int) -> bool:
        """Return True if acks=all would be refused after the loss of one more replica."""
        return len(self.isr.committed) == self.min_isr(configured)

    @property
    def is_under_replicated(self) -> bool:
        """True if the ISR is smaller than the replica set. Replicas that a reassignment is adding do not count in the
        replica set."""
        return len(self.isr.committed) < self.wanted_replicas

    @property
    def wanted_replicas(self) -> int:
        return sum(replica not in self._adding for replica in self.replicas)
