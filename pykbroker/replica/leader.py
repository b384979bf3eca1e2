"""The leader's view of its partition: the replica set, the ISR, and the progress of each follower; pure.

Responsible for the effect of a follower's fetch, for how far the log is committed, and for followers that join or leave
the ISR. It also has the number of replicas that acks=all needs, and the low watermark. Not responsible for the log
(partition.py), for requests that wait (commit.py, low_watermark.py), nor for asking the controller about the ISR
(isr_updates.py).

The high watermark follows Kafka's rule (KIP-966): it stands still while the ISR is smaller than min.insync.replicas,
and it waits for followers outside the ISR that keep up and may join it. Without that, a follower that lags by a moment
could never reach the high watermark, and so never join.

Invariants:
* A follower that has not fetched from this leader has proved nothing.
* A leader without followers is alone, and an append then makes no call here.
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
    """The rules by which all leaders of a node judge their followers."""

    node_id: int
    #: replica.lag.time.max.ms
    max_lag_ms: int
    #: returns a registered broker, as in the newest metadata
    broker: Callable[[int], BrokerImage | None]

    def may_join(self, follower: FollowerProgress) -> bool:
        """Return True if the controller would take it into an ISR: it is not fenced, does not shut down, and is the
        incarnation that has fetched (KIP-903)."""
        broker = self.broker(follower.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and follower.broker_epoch is not None
            and follower.broker_epoch in (ANY_EPOCH, broker.epoch)
        )

    def is_over(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if the broker has registered anew since."""
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
    """The role in one leader epoch."""

    __slots__ = ("_adding", "_followers", "_judgement", "is_alone", "isr", "leader_epoch", "replicas", "start_offset")

    def __init__(self, judgement: Judgement, image: PartitionImage, before: PartitionLeader | None = None) -> None:
        """`before` is set if this broker led in the leader epoch right before, and its log has continued. Then what
        followers proved still holds. After any other leader they might have cut their logs."""
        self._judgement = judgement
        self.leader_epoch: int = image.leader_epoch
        #: the end of the log when the epoch began; None while the log has not been opened
        self.start_offset: int | None = None
        self._followers: dict[int, FollowerProgress] = {} if before is None else before._followers
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
            # The answer did not contain that the replica set has changed, too. The controller certainly refuses this
            # change.
            isr.withdraw()
        # Otherwise a change stays in flight, because it was based on this epoch, and the controller may make it.
        self._set_replicas(image)

    def _set_replicas(self, image: PartitionImage) -> None:
        self.replicas = image.replicas
        self._adding = image.adding_replicas
        followers = [replica for replica in image.replicas if replica != self._judgement.node_id]
        self._followers = {replica: self._followers.get(replica) or FollowerProgress(replica) for replica in followers}
        #: True if there are no followers. Records are then committed when they are written, unless they owe a flush.
        self.is_alone = not followers

    def begin(self, log_end_offset: int, steady_ms: int) -> None:
        """Begin the epoch at the log's end when the log can be used. Only the first call counts."""
        if self.start_offset is None:
            self.start_offset = log_end_offset
            for follower in self._followers.values():
                in_sync = follower.broker_id in self.isr.committed
                follower.begin_epoch(log_end_offset, steady_ms, in_sync=in_sync)

    # -- what followers prove -----------------------------------------------------------------------------------------

    def has_follower(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if the broker is a follower, and this broker epoch of it is not over."""
        return replica_id in self._followers and not self._judgement.is_over(replica_id, broker_epoch)

    def require_follower(self, replica_id: int, broker_epoch: int, *, names_epoch: bool) -> None:
        """Raise KafkaError for a broker that is not a follower, or for a former incarnation of it. `names_epoch`: the
        request names this leader epoch."""
        if replica_id not in self._followers:
            # A follower that names the epoch has newer metadata, for example about a reassignment, and asks again.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {replica_id} is not one of its replicas")
        if self._judgement.is_over(replica_id, broker_epoch):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} has a newer broker epoch than {broker_epoch}"
            )

    def note(self, fetch: FollowerFetch) -> bool:
        """Take what a follower's fetch proves. Returns True if the follower's end has moved."""
        follower = self._followers.get(fetch.replica_id)
        return follower is not None and follower.note(fetch)

    def committed(self, end_offset: int, steady_ms: int) -> int:
        """Return how far the log is committed if the ISR is large enough: up to the least end of the maximal ISR and of
        the followers that keep up and may join it. `end_offset` is the leader's."""
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
        """Return the broker that a consumer in `rack` should read from `offset` on, None for this leader: Apache
        Kafka's RackAwareReplicaSelector (KIP-392). `rack_of` returns None for a broker that the consumer cannot reach.
        A consumer asks its leader again after metadata.max.age.ms, or when the follower does not have the offset."""
        if rack_of(leader_id) == rack:
            return None
        near = [follower for follower in self.readable(offset) if rack_of(follower.broker_id) == rack]
        if not near:
            return None
        best = max(near, key=lambda follower: (follower.end_offset, follower.caught_up_ms, follower.broker_id))
        return best.broker_id

    def readable(self, offset: int) -> Iterator[FollowerProgress]:
        """Yield the followers that a consumer may read from `offset` on. A follower outside the ISR may lag more and
        more, and a consumer that reads there again and again would never catch up."""
        for follower in self._followers.values():
            if follower.log_start_offset <= offset <= follower.end_offset and follower.broker_id in self.isr.committed:
                yield follower

    def largest_lag(self, log_start_offset: int, end_offset: int) -> int | None:
        """Return how many records the slowest follower lacks, None without followers. A follower that has not fetched
        from this leader yet may lack the whole log."""
        ends = [each.end_offset if each.end_offset >= 0 else log_start_offset for each in self._followers.values()]
        return max(0, end_offset - min(ends)) if ends else None

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start of the replicas on live brokers. `log_start_offset` is the leader's."""
        lowest = log_start_offset
        for follower in self._followers.values():
            if follower.log_start_offset < lowest and self._judgement.is_alive(follower.broker_id):
                lowest = follower.log_start_offset
        return lowest

    # -- the ISR ------------------------------------------------------------------------------------------------------

    def expansion(self, replica_id: int, high_watermark: int) -> PendingIsr | None:
        """Propose that a follower joins the ISR, if it may. It must have all committed records and have reached the
        start of this leader epoch. Before that it may lack committed records between the high watermark and the
        leader's end."""
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
        """Return the request to the controller. Each broker comes with the epoch that this leader knows of it, and the
        controller refuses a broker that has restarted since."""
        return RequestPartitionData(
            partition_index=index,
            leader_epoch=self.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=replica, broker_epoch=self._epoch_seen(replica)) for replica in change.replicas
            ],
            # A leader has recovered, because its log is the reference from now on (KIP-704).
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
        # The configured number is compared first, because nearly all appends meet it and it is cheap.
        in_sync = len(self.isr.committed)
        return in_sync >= configured or in_sync >= self.min_isr(configured)

    def had_enough_replicas(self, configured: int) -> bool:
        """Return True if as many replicas as acks=all needs hold the committed records."""
        return len(self.isr.maximal) >= self.min_isr(configured)

    def is_at_min_isr(self, configured: int) -> bool:
        """Return True if acks=all would be refused after the loss of one more replica."""
        return len(self.isr.committed) == self.min_isr(configured)

    @property
    def is_under_replicated(self) -> bool:
        """True if a replica is missing from the ISR. Replicas that are only being added do not count."""
        return len(self.isr.committed) < self.wanted_replicas

    @property
    def wanted_replicas(self) -> int:
        return sum(replica not in self._adding for replica in self.replicas)
