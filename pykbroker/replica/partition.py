"""One partition on this node: its role, which is from the metadata, and its log, which storage has.

Responsible for taking over a role, for appends and reads in that role, and for waking parked fetches. It moves the high
watermark as far as the leader (leader.py) and owed flushes (commit.py) allow. Not responsible for the bytes (log/), for
opening the log (storage/log_handle.py), for requesting another ISR (isr_updates.py), nor for the choice of partitions
(table.py).

A role change waits for the end of a truncation. Until then the partition keeps its role.

Invariants: the leader epoch only rises. The high watermark never moves back in a leader epoch. While the ISR is below
min.insync.replicas it stands still, and acks=all is refused before the append. min.insync.replicas never needs more
replicas than the partition has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykbroker.replica.commit import Commit, Waiter
from pykbroker.replica.follower import PartitionFollower
from pykbroker.replica.leader import PartitionLeader
from pykbroker.replica.low_watermark import LowWatermark
from pykbroker.replica.progress import ANY_EPOCH, UNKNOWN, FollowerFetch
from pykbroker.runtime.later import OnOutcome
from pykbroker_log.disk import parent_of
from pykbroker_log.log_config import MAX_INT64, AppendOrigin, LogConfig, StorageError
from pykbroker_log.partition_log import AppendInfo, PartitionLog, ReadResult
from pykbroker_log.producers import ActiveProducer
from pykbroker_log.validate import CheckedBatch
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.control import end_txn_marker

if TYPE_CHECKING:
    from pykbroker.metadata.image import PartitionImage
    from pykbroker.replica.parked import FetchWaiter
    from pykbroker.replica.partition_services import PartitionServices
    from pykbroker.storage.log_handle import LogHandle

#: A byte count that wakes each parked fetch, for changes whose bytes are not known.
ENOUGH = 1 << 62


class Partition:
    """A replica of this node. Its role is `leader` while this node leads it, otherwise `follower`. It has neither
    before the first `update`."""

    __slots__ = (
        "_commit",
        "_next",
        "_next_config",
        "_shared",
        "fetch_waiters",
        "follower",
        "handle",
        "index",
        "leader",
        "leader_epoch",
        "low_watermark",
        "promises_flush",
        "reign",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(self, handle: LogHandle, shared: PartitionServices[Partition]) -> None:
        self.handle = handle
        self.topic = handle.topic
        self.index = handle.index
        self.topic_id = handle.topic_id
        #: -1 before the first `update`, and then it only rises
        self.leader_epoch = -1
        #: exactly one of the two roles is set after the first `update`, and neither after `detach`
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        # The metadata that has come since a truncation began; None unless the log is being truncated.
        self._next: PartitionImage | None = None
        self._next_config: LogConfig | None = None
        #: changes with each loss of the leadership or the log, after which earlier appends may have been cut off
        self.reign = 0
        #: True if flush.messages is set, and as long as `_commit` owes a flush
        self.promises_flush = False
        #: in the order of their arrival, in which they are notified
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        #: None if this node does not report its load
        self.traffic = None if shared.new_traffic is None else shared.new_traffic()
        self._shared = shared
        self._commit = Commit()
        #: the requests that wait for a deletion on all replicas
        self.low_watermark = LowWatermark()
        handle.attach(self)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- log ----------------------------------------------------------------------------------------------------------

    @property
    def log(self) -> PartitionLog:
        """The log, opened on first use. Raises KAFKA_STORAGE_ERROR, and NOT_LEADER_OR_FOLLOWER while it is being
        recovered."""
        return self.handle.log or self.handle.open()

    @property
    def log_if_open(self) -> PartitionLog | None:
        return self.handle.log

    @property
    def offline(self) -> bool:
        """True if its log directory failed. Each access to the log then raises KAFKA_STORAGE_ERROR."""
        return self.handle.offline

    @property
    def recovering(self) -> bool:
        """True if the node stopped uncleanly before, and the log is not checked yet."""
        return self.handle.recovering

    def when_recovered(self, callback: Callable[[], None]) -> None:
        """Call back once the log can be opened or is known to be lost, at once if it can be opened now."""
        self.handle.when_recovered(callback)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def log_opened(self, log: PartitionLog) -> None:
        self._begin_epoch(log)
        if self.handle.log is None:
            return  # its directory failed
        self.configure(log.config)
        if self.promises_flush:
            # After a kill, the last records are only in the page cache. Consumers may read them at once, because the
            # end for clients must not move back. But a batch that is sent again is acknowledged only after the flush.
            self.owe_flush(log, log.recovery_point, readable_to=log.log_end_offset)
        self.advance()

    def log_moved(self, log: PartitionLog) -> None:
        # Records that owed a flush are flushed in the new place.
        if self._commit.owes_flush:
            self._flushed()()

    def log_truncated(self) -> None:
        if self._commit.owes_flush:
            # The truncation has cancelled that flush. The remaining records owe a new flush if there are enough of
            # them.
            self._flushed()()
        config, self._next_config = self._next_config, None
        if config is not None:
            self.configure(config)
        self.tell_readers()
        self._take_next()

    def log_lost(self) -> None:
        self._take_next()
        self._fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)

    def storage_failed(self, error: StorageError) -> KafkaError:
        """Handle a disk that failed during a request. Return the error to raise."""
        self._shared.directory_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}")

    # -- role ---------------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    def update(self, image: PartitionImage) -> None:
        """Take over the metadata, after the end of a truncation that is under way."""
        if self.handle.truncating:
            self._next = image
        else:
            self._take(image)

    def _take_next(self) -> None:
        image, self._next = self._next, None
        if image is not None:
            self._take(image)

    def _take(self, image: PartitionImage) -> None:
        is_new_epoch = image.leader_epoch != self.leader_epoch
        self.leader_epoch = image.leader_epoch
        if image.leader == self._shared.node_id:
            self._lead(image, is_new_epoch)
        else:
            self._follow(image.leader, is_new_epoch)

    def _lead(self, image: PartitionImage, is_new_epoch: bool) -> None:
        leader = self.leader
        if self.follower is not None:
            self.follower.end()
            self.follower = None
        if leader is None or is_new_epoch:
            # If this node led before, requests that wait are not affected, because their records stay in this log.
            before = leader if leader is not None and leader.leader_epoch + 1 == image.leader_epoch else None
            self.leader = PartitionLeader(self._shared.judgement, image, before)
            self.tell_readers()
        else:
            self._shared.isr_updates.hear(self, leader, image)
        log = self.handle.log
        if log is not None:
            self._begin_epoch(log)
            self.advance()
        self.low_watermark.look(self)
        if is_new_epoch:
            self._shared.leadership(self, True)

    def _follow(self, leader_id: int, is_new_epoch: bool) -> None:
        leader, self.leader = self.leader, None
        is_new = self.follower is None or is_new_epoch
        if is_new:
            if self.follower is not None:
                self.follower.end()
            self.follower = PartitionFollower(self.handle, leader_id, self.leader_epoch, self._shared.follower, self)
            self.tell_readers()
        if leader is not None:
            self._fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._shared.leadership(self, False)
        if is_new:
            self._shared.following(self)

    def tell_readers(self) -> None:
        """Let parked fetches read again. After a leader epoch has begun, fetches that named the epoch before get an
        error (KIP-320). On a follower, the records that consumers may read (KIP-392) have changed, or the log was
        cut."""
        if self.fetch_waiters:
            self._shared.changed(self, ENOUGH, ENOUGH, ENOUGH)

    def _begin_epoch(self, log: PartitionLog) -> None:
        """Record that the leader epoch begins at the end of the log, even if no record is ever written in it
        (KIP-101)."""
        if self.leader is None:
            return
        self.leader.begin(log.log_end_offset, self._shared.steady_ms())
        if self.leader_epoch > log.epochs.latest:
            try:
                log.assign_epoch_start(self.leader_epoch, log.log_end_offset)
            except StorageError as error:
                self._shared.directory_failed(error)

    def require_epoch(self, current_leader_epoch: int = -1) -> None:
        """Check a request that any replica may answer (KIP-320): it must not name another leader epoch. Raises
        KafkaError."""
        if self.handle.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: its log directory is offline")
        if current_leader_epoch != -1:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self}: leader epoch is {self.leader_epoch}, not {current_leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                raise KafkaError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"{self}: leader epoch is {self.leader_epoch}, not yet {current_leader_epoch}",
                )

    def require_leader(self, current_leader_epoch: int = -1) -> PartitionLeader:
        """Check a request that only the leader answers. Raises KafkaError."""
        self.require_epoch(current_leader_epoch)
        if self.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: this node is not its leader")
        return self.leader

    @property
    def is_alone(self) -> bool:
        """True if the leader has no followers. Records are then committed when they are written, unless they owe a
        flush."""
        return self.leader is not None and self.leader.is_alone

    @property
    def had_enough_replicas(self) -> bool:
        """True if at least as many replicas as acks=all needs have the committed records."""
        leader, log = self.leader, self.handle.log
        return leader is not None and log is not None and leader.had_enough_replicas(log.config.min_insync_replicas)

    # -- append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | bytearray | memoryview | CheckedBatch,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: object | None = None,
        transaction_version: int = 0,
        at_once: bool = False,
    ) -> AppendInfo:
        """Append as leader. If it raises KafkaError, nothing was appended. With `at_once` it also raises TooMuchAtOnce
        for a batch that takes too long to check on the loop.

        `verification`: the guard of a batch that begins a transaction here (`start_verification`).
        """
        leader = self.leader or self.require_leader()
        log = self.handle.log or self.handle.open()
        if self._shared.space.short:
            self._shared.space.require_room(parent_of(log.path), self)
        if (
            required_acks == -1
            and not leader.is_alone
            and not leader.has_enough_replicas(log.config.min_insync_replicas)
        ):
            least = leader.min_isr(log.config.min_insync_replicas)
            in_sync = len(leader.isr.committed)
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self}: {least} replicas must be in sync, {in_sync} are")
        try:
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                verification=verification,
                transaction_version=transaction_version,
                at_once=at_once,
            )
        except StorageError as error:
            raise self.storage_failed(error) from error
        if not info.duplicate:
            if self.promises_flush:
                self.owe_flush(log, info.first_offset)
            shared = self._shared
            size = info.byte_count
            metrics = shared.topic_metrics
            metrics.messages_in.value += info.record_count
            metrics.bytes_in.value += size
            if self.traffic is not None:
                self.traffic.appended(size, info.record_count)
            if self.fetch_waiters and not leader.is_alone:
                # Followers read records that are not committed yet.
                shared.changed(self, size, 0, 0)
            self.advance(size)
        return info

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
        now_ms: int,
    ) -> AppendInfo:
        """End a producer's transaction in this log. If it raises KafkaError, nothing was appended. For readers the
        transaction has ended when the marker is committed (`when_committed(info.last_offset + 1, ...)`)."""
        marker = end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        return self.append(
            bytearray(marker),
            required_acks=-1,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
        )

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool
    ) -> object | None:
        """Return the guard for the append of a transactional batch, whose transaction the coordinator must verify
        first. None if the transaction is open in this log, so that nothing has to be verified. Raises KafkaError.
        `supports_epoch_bump`: the producer gets a new epoch for each transaction (transaction.version 2)."""
        if self.leader is None:
            self.require_leader()
        return self.log.producers.begin_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._shared.now_ms(),
        )

    def takes_guard(self, producer_id: int, producer_epoch: int, guard: object) -> bool:
        """Return True if a batch with this guard would not be refused because of the guard."""
        log = self.handle.log
        return self.leader is None or log is None or log.producers.takes_guard(producer_id, producer_epoch, guard)

    def active_producers(self) -> list[ActiveProducer]:
        """Return all producers in the producer state of this log."""
        return self.log.producers.active()

    # -- commit -------------------------------------------------------------------------------------------------------

    def advance(self, arrived_bytes: int = ENOUGH) -> None:
        """Move the high watermark as far as the replica set allows, and notify the waiters. `arrived_bytes` is the size
        of an append that caused it."""
        log, leader = self.handle.log, self.leader
        if log is None or leader is None:
            return
        commit = self._commit
        current = log.high_watermark
        reached = log.log_end_offset
        if not leader.is_alone:
            if not leader.has_enough_replicas(log.config.min_insync_replicas):
                return
            reached = leader.committed(reached, self._shared.steady_ms())
            # The records that are committed now may be others than those of this append.
            arrived_bytes = ENOUGH
        if commit.readable_to < reached:
            reached = commit.readable_to
        if reached <= current:
            return
        if self.fetch_waiters:
            stable_before = log.last_stable_offset
            log.set_high_watermark(reached)
            stable = log.last_stable_offset
            if stable == reached and stable_before == current:
                stable_bytes = arrived_bytes
            else:
                # A transaction is open or was open. The bytes that become readable with its end were not counted.
                stable_bytes = ENOUGH if stable > stable_before else 0
            self._shared.changed(self, 0, arrived_bytes, stable_bytes)
        else:
            log.set_high_watermark(reached)
        commit.reached(reached)

    def has_committed(self, offset: int) -> bool:
        """Return True if the record at this offset is committed."""
        log = self.handle.log
        return log is not None and log.high_watermark > offset

    def when_committed(self, offset: int, callback: OnOutcome) -> Waiter | None:
        """Call back as soon as all records before `offset` are committed, or with the error if they will not be. Return
        the argument for `forget`, or None if the callback was called at once."""
        log = self.handle.log
        if self.leader is None:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif log is None:
            callback(ErrorCode.KAFKA_STORAGE_ERROR)
        elif log.high_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            return self._commit.when_committed(offset, callback)
        return None

    def forget(self, waiter: Waiter) -> None:
        """Cancel a callback of `when_committed`."""
        self._commit.forget(waiter)

    def _fail_waiters(self, code: ErrorCode) -> None:
        self.reign += 1
        self._commit.fail(code)
        self.low_watermark.fail(code)
        self.tell_readers()

    def brokers_changed(self) -> None:
        """Compute the watermarks again after a broker came, went or was fenced. Its followers may count differently."""
        leader = self.leader
        if leader is not None and not leader.is_alone:
            self.advance()
            self.low_watermark.look(self)

    def shrink_isr(self) -> None:
        """Propose that followers that have not kept up leave the ISR. Advance without followers outside it that lag."""
        leader, log = self.leader, self.handle.log
        if leader is not None and log is not None and not leader.is_alone:
            self._shared.isr_updates.shrink(self, leader, log.log_end_offset, self._shared.steady_ms())
            self.advance()

    # -- flush --------------------------------------------------------------------------------------------------------

    @property
    def owed_from(self) -> int:
        """The first offset that must not be acknowledged before it is flushed."""
        return self._commit.owed_from

    def configure(self, config: LogConfig) -> None:
        """Take the topic's configuration. Flushes that are owed already are still done."""
        log = self.handle.log
        if log is None:
            if self.handle.truncating:
                self._next_config = config
        else:
            min_isr_changed = config.min_insync_replicas != log.config.min_insync_replicas
            log.config = config
            self.promises_flush = config.flush_messages != MAX_INT64 or self._commit.owes_flush
            if min_isr_changed:
                self.advance()

    def owe_flush(self, log: PartitionLog, offset: int, *, readable_to: int = -1) -> None:
        """Owe a flush of records appended from `offset` on, if flush.messages or more records are unflushed now."""
        commit = self._commit
        if not commit.owes_flush and log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            commit.owe_flush(offset, readable_to=readable_to)
            self._shared.want_flush(log, self._flushed)

    def _flushed(self) -> Callable[[], None]:
        log = self.handle.log
        self._commit.flushed()
        if log is not None:
            # Records that were appended in the meantime may be enough for the next flush.
            self.owe_flush(log, log.recovery_point)
        return self._tell_flushed

    def _tell_flushed(self) -> None:
        log = self.handle.log
        if log is None:
            return
        self.configure(log.config)
        self.advance()
        self._commit.tell_flushed()

    def when_flushed(self, offset: int, callback: OnOutcome) -> None:
        """Call back as soon as no record before `offset` owes a flush, or with the error if the flush fails."""
        if self.handle.log is None:
            callback(ErrorCode.KAFKA_STORAGE_ERROR if self.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self._commit.when_flushed(offset, callback)

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        min_one: bool,
        regions: bool = False,
        wait: bool = True,
    ) -> ReadResult:
        """Read for a consumer, up to the high watermark or last stable offset. Raises KafkaError, ColdRead unless
        `wait`."""
        log = self.handle.log or self.handle.open()
        upper = log.last_stable_offset if read_committed else log.high_watermark
        try:
            return log.read(
                offset, max_bytes, upper, min_one=min_one, regions=regions, with_aborted=read_committed, wait=wait
            )
        except StorageError as error:
            raise self.storage_failed(error) from error

    def read_for_follower(
        self, offset: int, max_bytes: int, *, min_one: bool, regions: bool = False, wait: bool = True
    ) -> ReadResult:
        """Read for a follower, up to the log end. Changes nothing (see `note_fetched`). Raises as `read`."""
        log = self.log
        try:
            return log.read(offset, max_bytes, log.log_end_offset, min_one=min_one, regions=regions, wait=wait)
        except StorageError as error:
            raise self.storage_failed(error) from error

    def note_fetched(
        self,
        replica_id: int,
        offset: int,
        *,
        leader_end: int | None = None,
        log_start_offset: int = UNKNOWN,
        broker_epoch: int = ANY_EPOCH,
    ) -> None:
        """Note that a follower has read from `offset` on, which proves that it has all records before `offset`.
        `leader_end`: the end of this log at the time of that read, or None if that was just now."""
        leader, log = self.leader, self.handle.log
        if leader is None or log is None:
            return
        end = log.log_end_offset if leader_end is None else leader_end
        shared = self._shared
        moved = leader.note(FollowerFetch(replica_id, offset, log_start_offset, broker_epoch, end, shared.steady_ms()))
        shared.isr_updates.expand(self, leader, replica_id, log.high_watermark)
        if moved:
            self.advance()
        self.low_watermark.look(self)

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> tuple[int, int]:
        """Delete records as DeleteRecords does; -1 stands for the high watermark. Return the resulting offset and the
        low watermark. Raises OFFSET_OUT_OF_RANGE."""
        leader, log = self.require_leader(), self.log
        target = log.high_watermark if offset == -1 else offset
        if target < 0 or target > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self}: cannot delete up to {offset}, the high watermark is {log.high_watermark}",
            )
        try:
            log.delete_records_before(target)
        except StorageError as error:
            raise self.storage_failed(error) from error
        return target, leader.low_watermark(log.log_start_offset)

    # -- end ----------------------------------------------------------------------------------------------------------

    def detach(self) -> None:
        """End the role and fail all waiters, because the partition was deleted or moved to other brokers."""
        was_leader = self.is_leader
        self.leader = self._next = None
        if self.follower is not None:
            self.follower.end()
            self.follower = None
        self._fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if was_leader:
            self._shared.leadership(self, False)
