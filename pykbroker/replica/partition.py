"""One partition on this node: its role, its log, its high watermark, and who waits for it.

Responsible for: leader and follower roles as the metadata says, appends and reads in that role, moving the high
watermark from the replica set and nothing else, telling waiters. Not responsible for the bytes (log/), nor for which
partitions exist (table.py).

Invariants: leader epoch only rises; the high watermark never moves back in a leader epoch;
acks=all is refused before the append while the ISR is below min.insync.replicas, which asks for no more replicas than
the partition has.

flush.messages is a promise about what is acknowledged and read. The append that reaches it owes a flush (flusher.py),
and so does every one after it until that is done. `owed_from` is where they begin: nothing from there on is answered,
whatever its acks (`when_flushed`), nor passed by the high watermark.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pykbroker.replica.isr import high_watermark
from pykbroker_log.log_config import MAX_INT64, AppendOrigin, LogConfig, StorageError
from pykbroker_log.partition_log import AppendInfo, PartitionLog, ReadResult
from pykbroker_log.producers import ActiveProducer, BatchMetadata
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.control import end_txn_marker

if TYPE_CHECKING:
    from pykbroker.metadata.image import PartitionImage
    from pykbroker.replica.parked import ParkedFetch
    from pykbroker.replica.table import ReplicaTable

logger = logging.getLogger(__name__)

#: Where the appends that owe a flush begin when there are none.
NEVER = MAX_INT64
Committed = Callable[[ErrorCode], None]
#: How many bytes became readable, where nobody counted them: worth reading again for everyone.
ENOUGH = 1 << 62


class Partition:
    """A replica of this node. `table` opens its log on first use and collects what happens to it."""

    __slots__ = (
        "_alone",
        "_commit_waiters",
        "_flush_waiters",
        "_followers",
        "_log",
        "_readable",
        "_recovered_batches",
        "_recovery",
        "_sequence",
        "fetch_waiters",
        "index",
        "is_leader",
        "is_new",
        "isr",
        "leader_epoch",
        "leader_id",
        "offline",
        "owed_from",
        "partition_epoch",
        "promises_flush",
        "replicas",
        "table",
        "topic",
        "topic_id",
    )

    def __init__(self, table: ReplicaTable, topic: str, index: int, topic_id: bytes, *, is_new: bool = False) -> None:
        self.table = table
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        #: made after this node's start
        self.is_new = is_new
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.is_leader = False
        #: its log directory failed: every access answers KAFKA_STORAGE_ERROR
        self.offline = False
        #: in the order in which they came: who waits longest is told first, and the same run tells in the same order
        self.fetch_waiters: dict[ParkedFetch, None] = {}
        self._log: PartitionLog | None = None
        # Who waits for the log while it is being recovered; None: nobody has to.
        self._recovery: list[Callable[[], None]] | None = None
        # Of its producers, for the log when it is opened.
        self._recovered_batches: Mapping[int, list[BatchMetadata]] | None = None
        self._followers: dict[int, int] = {}
        self._alone = False
        #: flush.messages is set, or what it demands is under way
        self.promises_flush = False
        #: the first offset that must not be answered before it is flushed
        self.owed_from = NEVER
        # ... and the one that the high watermark must not pass before
        self._readable = NEVER
        self._flush_waiters: list[tuple[int, Committed]] = []
        self._commit_waiters: list[tuple[int, int, Committed]] = []
        self._sequence = 0

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- log ----------------------------------------------------------------------------------------------------------

    @property
    def log(self) -> PartitionLog:
        """The log, opened on first use. Raises KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER while it is recovered."""
        log = self._log
        if log is None:
            if self.offline:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: its log directory is offline")
            if self._recovery is not None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: its log is being recovered")
            log = self._log = self.table.open_log(self)
            if self._recovered_batches:
                log.producers.remember(self._recovered_batches)
                self._recovered_batches = None
            self._begin_epoch(log)
            self.configure(log.config)
            if self.promises_flush:
                # What a killed process has left is in the page cache only. Readers see it at once: whoever reads to the
                # end must not be told of an earlier one. But a batch of it that is sent again is not acknowledged yet.
                self._owe_flush(log, log.recovery_point, readable=log.log_end_offset)
            self._advance()
        return log

    @property
    def log_if_open(self) -> PartitionLog | None:
        return self._log

    @property
    def can_be_opened(self) -> bool:
        """The log is not open, and asking for it would open it."""
        return self._log is None and self._recovery is None and not self.offline

    def log_moved(self, log: PartitionLog) -> None:
        """The same records, in another directory, and what was owed a flush is flushed there: nobody who waits or reads
        needs to know."""
        self._log = log
        if self.owed_from != NEVER:
            self._flushed()()

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def recovering(self) -> bool:
        """An unclean stop has left the log, and it is not checked yet."""
        return self._recovery is not None

    def await_recovery(self) -> None:
        """Nobody is to open the log before `recovered`."""
        self._recovery = []

    def when_recovered(self, callback: Callable[[], None]) -> None:
        """Call back once the log can be opened, or is known to be lost; at once if it can."""
        if self._recovery is None:
            callback()
        else:
            self._recovery.append(callback)

    def recovered(self, batches: Mapping[int, list[BatchMetadata]] | None = None) -> None:
        """The log is as a clean stop leaves one: tell who waits. `batches` of producers, which only the recovery has
        read, are for whoever opens it: not all in the turn in which a worker is ready with many."""
        waiting, self._recovery = self._recovery or [], None
        self._recovered_batches = batches
        self.table.opener.add(self)
        for callback in waiting:
            callback()

    # -- role ---------------------------------------------------------------------------------------------------------

    def update(self, image: PartitionImage, node_id: int) -> tuple[bool, bool]:
        """Take over what the metadata says. Returns (became leader in a new epoch, stopped being leader)."""
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self.leader_id = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = tuple(image.replicas)
        self.isr = tuple(image.isr)
        self.is_leader = image.leader == node_id
        self._alone = self.isr == (node_id,)
        new_epoch = image.leader_epoch != old_epoch
        if new_epoch:
            self._followers.clear()
        if was_leader and not self.is_leader:
            # A new epoch of the same leader takes nothing from a request that waits: its records stay in this log.
            self._fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif was_leader and new_epoch and self.fetch_waiters:
            # A parked fetch that named the epoch before is told (KIP-320); the others wait on.
            self.table.changed(self, ENOUGH, ENOUGH)
        if self.is_leader and self._log is not None:
            self._begin_epoch(self._log)
            self._advance()
        return self.is_leader and new_epoch, was_leader and not self.is_leader

    def _begin_epoch(self, log: PartitionLog) -> None:
        """A leader's epoch begins where its log ends, also when nothing is ever written in it (KIP-101)."""
        if self.is_leader and self.leader_epoch > log.epochs.latest:
            try:
                log.assign_epoch_start(self.leader_epoch, log.log_end_offset)
            except StorageError as error:
                self.table.directory_failed(error)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """KIP-320 and KIP-392 checks of a request that only the leader answers."""
        if self.offline:
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
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: this node is not its leader")

    @property
    def is_alone(self) -> bool:
        """The leader is its whole ISR: what it appends is committed when it is written, unless it owes a flush."""
        return self._alone

    @property
    def min_isr(self) -> int:
        """How many replicas acks=all asks for: min.insync.replicas, and never more than the partition has."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def has_enough_replicas(self) -> bool:
        """As many are in sync as acks=all asks for."""
        return len(self.isr) >= self.min_isr

    # -- append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | bytearray | memoryview,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: object | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append as leader. Raises KafkaError; nothing was appended then.

        `verification`: the guard of a batch that begins a transaction here (`start_verification`).
        """
        if not self.is_leader:
            self.require_leader()
        log = self._log or self.log
        # The configured number first: it is met by nearly every append, and costs less to ask for.
        if required_acks == -1 and len(self.isr) < log.config.min_insync_replicas and not self.has_enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{self}: {len(self.isr)} in-sync replicas of at least {self.min_isr}"
            )
        try:
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                verification=verification,
                transaction_version=transaction_version,
            )
        except StorageError as error:
            raise self.storage_failed(error) from error
        if not info.duplicate:
            if self.promises_flush:
                self._owe_flush(log, info.first_offset)
            table = self.table
            size = info.byte_count
            table.messages_in.value += info.record_count
            table.bytes_in.value += size
            self._advance(size)
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
        """End a producer's transaction in this log. Raises KafkaError; nothing was appended then. It has ended for
        readers when it is committed (`when_committed(info.last_offset + 1, ...)`)."""
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
        """The guard to append a transactional batch with, once the coordinator has verified its transaction; None: it
        is open here, nothing is to be verified. Raises KafkaError. `supports_epoch_bump`: the producer gets a new epoch
        for every transaction (transaction.version 2)."""
        if not self.is_leader:
            self.require_leader()
        return self.log.producers.begin_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self.table.runtime.now_ms(),
        )

    def active_producers(self) -> list[ActiveProducer]:
        """Every producer that this log knows of."""
        return self.log.producers.active()

    def _advance(self, arrived_bytes: int = ENOUGH) -> None:
        """Move the high watermark to what the replica set has, and tell who waits."""
        log = self._log
        if log is None or not self.is_leader:
            return
        current = log.high_watermark
        reached = log.log_end_offset
        if self._readable < reached:
            reached = self._readable
        if not self._alone:
            reached = high_watermark(current, reached, self._followers, self.isr, self.leader_id)
        if reached <= current:
            return
        if self.fetch_waiters:
            stable_before = log.last_stable_offset
            log.set_high_watermark(reached)
            stable = log.last_stable_offset
            if stable == reached and stable_before == current:
                stable_bytes = arrived_bytes
            else:
                # A transaction is open, or was: how much its end makes readable was not counted.
                stable_bytes = ENOUGH if stable > stable_before else 0
            self.table.changed(self, arrived_bytes, stable_bytes)
        else:
            log.set_high_watermark(reached)
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= reached:
            heapq.heappop(waiters)[2](ErrorCode.NONE)

    def when_committed(self, offset: int, callback: Committed) -> None:
        """Call back once everything before `offset` is committed (at once if it is), or with why it will not be."""
        if not self.is_leader:
            callback(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._log is None:
            callback(ErrorCode.KAFKA_STORAGE_ERROR)
        elif self._log.high_watermark >= offset:
            callback(ErrorCode.NONE)
        else:
            self._sequence += 1
            heapq.heappush(self._commit_waiters, (offset, self._sequence, callback))

    def _fail_waiters(self, code: ErrorCode) -> None:
        unflushed, self._flush_waiters = self._flush_waiters, []
        for _, callback in unflushed:
            callback(code)
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, _, callback in sorted(waiters, key=lambda entry: entry[1]):
            callback(code)
        if self.fetch_waiters:
            self.table.changed(self, ENOUGH, ENOUGH)

    # -- flush --------------------------------------------------------------------------------------------------------

    def configure(self, config: LogConfig) -> None:
        """The topic's configuration. What is owed already is still flushed."""
        if self._log is not None:
            self._log.config = config
            self.promises_flush = config.flush_messages != MAX_INT64 or self.owed_from != NEVER

    def _owe_flush(self, log: PartitionLog, offset: int, *, readable: int = -1) -> None:
        """What was appended from `offset` on may be too much to be unflushed. `readable`: how far readers may see
        meanwhile, if further than that."""
        if self.owed_from == NEVER and log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self.owed_from = offset
            self._readable = max(offset, readable)
            self.table.flusher.want(log, self._flushed)

    def _flushed(self) -> Callable[[], None]:
        log = self._log
        self.owed_from = self._readable = NEVER
        if log is not None:
            # What was appended meanwhile may be enough for the next flush.
            self._owe_flush(log, log.recovery_point)
        return self._tell_flushed

    def _tell_flushed(self) -> None:
        log = self._log
        if log is None:
            return
        self.configure(log.config)
        self._advance()
        waiters, self._flush_waiters = self._flush_waiters, []
        for waiter in waiters:
            if waiter[0] <= self.owed_from:
                waiter[1](ErrorCode.NONE)
            else:
                self._flush_waiters.append(waiter)

    def when_flushed(self, offset: int, callback: Committed) -> None:
        """Call back once nothing before `offset` owes a flush any more (at once if so), or with why it will not be."""
        if self._log is None:
            callback(ErrorCode.KAFKA_STORAGE_ERROR if self.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif offset <= self.owed_from:
            callback(ErrorCode.NONE)
        else:
            self._flush_waiters.append((offset, callback))

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        min_one: bool,
        zero_copy: bool = False,
        wait: bool = True,
    ) -> ReadResult:
        """Read for a consumer: up to the high watermark, or the last stable offset. Raises KafkaError; ColdRead unless
        `wait`."""
        log = self._log or self.log
        upper = log.last_stable_offset if read_committed else log.high_watermark
        try:
            return log.read(
                offset, max_bytes, upper, min_one=min_one, regions=zero_copy, with_aborted=read_committed, wait=wait
            )
        except StorageError as error:
            raise self.storage_failed(error) from error

    def read_as_replica(
        self,
        replica_id: int,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        zero_copy: bool = False,
        wait: bool = True,
    ) -> ReadResult:
        """Read for a follower: up to the log end; its offset is proof of what it has. Raises as `read`."""
        if replica_id not in self.replicas:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: broker {replica_id} is not one of its replicas"
            )
        log = self.log
        try:
            result = log.read(offset, max_bytes, log.log_end_offset, min_one=min_one, regions=zero_copy, wait=wait)
        except StorageError as error:
            raise self.storage_failed(error) from error
        if self._followers.get(replica_id, -1) < offset:
            self._followers[replica_id] = offset
            self._advance()
        return result

    def delete_records_before(self, offset: int) -> int:
        """DeleteRecords: -1 stands for the high watermark. Returns the low watermark; raises OFFSET_OUT_OF_RANGE."""
        log = self.log
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
        return log.log_start_offset

    def storage_failed(self, error: StorageError) -> KafkaError:
        """The disk failed under a request: what becomes of the directory, and the answer to raise."""
        self.table.directory_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}")

    # -- end ----------------------------------------------------------------------------------------------------------

    def take_offline(self) -> None:
        """Its directory failed. Reads that were handed out stay valid; nothing more is opened."""
        self.offline = True
        self._log = None
        waiting, self._recovery = self._recovery or [], None
        for callback in waiting:
            callback()
        self._fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)

    def detach(self) -> PartitionLog | None:
        """The partition was deleted or moved away: fail who waits, hand the log to the caller."""
        self.is_leader = False
        self.leader_id = -1
        log, self._log = self._log, None
        self._recovery = None
        self._fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log
