"""The role of a partition that this node follows: only a fetcher changes its log.

Responsible for appends and truncations in that role, for taking over the leader's high watermark and log start, and for
refusing all of this when the role is over. Not responsible for fetching (fetching/). storage/truncation_threads.py runs
a truncation. Until it has ended, the log takes no append, and the partition takes no other role.

Invariants:
* A fetcher that was started for an older leader epoch changes nothing.
* An entry in cleaner-offset-checkpoint is durable before the first batch that follows a gap is appended. So after a
  crash, the start does not treat such a gap as a loss of records (storage/follower_gaps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pykbroker.runtime.later import OnOutcome
from pykbroker_log.disk import parent_of
from pykbroker_log.log_config import MAX_INT64, StorageError
from pykbroker_log.partition_log import AppendInfo, PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Counter
    from pykbroker.replica.replica_traffic import PartitionTraffic
    from pykbroker.storage.log_handle import LogHandle
    from pykbroker.storage.space import DiskSpace


@dataclass(slots=True, frozen=True)
class FollowerServices:
    """The services that the followers of a node share."""

    truncate: Callable[[LogHandle, int, OnOutcome], None]
    start_over: Callable[[LogHandle, int, OnOutcome], None]
    #: called for each disk that fails
    directory_failed: Callable[[StorageError], None]
    space: DiskSpace
    note_gaps: Callable[[LogHandle, PartitionLog, OnOutcome], None]
    bytes_in: Counter


class FollowedPartition(Protocol):
    """The part of the partition with this role that the role uses."""

    #: None if this node does not report its load
    traffic: PartitionTraffic | None

    def owe_flush(self, log: PartitionLog, offset: int) -> None:
        """Note that records were appended from `offset` on, and that flush.messages is set."""

    def when_flushed(self, offset: int, callback: OnOutcome) -> None:
        """Call back as soon as no record before `offset` owes a flush."""

    def tell_readers(self) -> None:
        """Let parked fetches read again, because the records that consumers may read have changed."""


class RoleWatcher(Protocol):
    """Is notified when a role ends."""

    def role_ended(self, follower: PartitionFollower) -> None:
        """Note that the partition has another role, or follows in another leader epoch."""


class PartitionFollower:
    """The follower role in one leader epoch."""

    __slots__ = (
        "_gaps_noted",
        "_partition",
        "_services",
        "_watcher",
        "handle",
        "is_over",
        "leader",
        "leader_epoch",
    )

    def __init__(
        self,
        handle: LogHandle,
        leader: int,
        leader_epoch: int,
        services: FollowerServices,
        partition: FollowedPartition,
    ) -> None:
        self.handle = handle
        #: the broker that leads, or -1 if no broker does
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.is_over = False
        self._services = services
        self._partition = partition
        self._watcher: RoleWatcher | None = None
        # The log for which the entry about gaps is already durable.
        self._gaps_noted: PartitionLog | None = None

    def __repr__(self) -> str:
        return f"{self.handle}"

    def end(self) -> None:
        """End the role, because the partition has another role or follows in another leader epoch."""
        self.is_over = True
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.role_ended(self)

    def watch(self, watcher: RoleWatcher) -> None:
        """Notify `watcher` when the role ends. A role has at most one watcher."""
        assert self._watcher is None, self
        assert not self.is_over, self
        self._watcher = watcher

    # -- where the log is ---------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.handle.open().log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.handle.open().log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.handle.open().high_watermark

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1 if the log has none."""
        return self.handle.open().epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """See PartitionLog.epoch_end_offset."""
        return self.handle.open().epoch_end_offset(leader_epoch)

    # -- what the leader says -----------------------------------------------------------------------------------------

    def append(self, records: bytes | bytearray | memoryview, *, now_ms: int) -> AppendInfo:
        """Append the leader's records unchanged. If it raises KafkaError, nothing was appended."""
        self._require_role()
        log = self.handle.open()
        if self._services.space.short:
            self._services.space.require_room(parent_of(log.path), self.handle)
        try:
            info = log.append_as_follower(records, now_ms=now_ms)
        except StorageError as error:
            raise self._failed(error) from error
        self._services.bytes_in.value += info.byte_count
        traffic = self._partition.traffic
        if traffic is not None:
            traffic.replicated(info.byte_count)
        if log.config.flush_messages != MAX_INT64:
            self._partition.owe_flush(log, info.first_offset)
        return info

    def agree(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start, as far as this log reaches. Raises KafkaError."""
        self._require_role()
        log = self.handle.open()
        if log.high_watermark != high_watermark and high_watermark >= 0:
            log.set_high_watermark(high_watermark)
            self._partition.tell_readers()
        start = min(log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            try:
                log.delete_records_before(start, reason="leader offset increment")
            except StorageError as error:
                raise self._failed(error) from error

    def when_flushed(self, then: OnOutcome) -> None:
        """Call back as soon as no record in the log owes a flush (flush.messages). The next fetch acknowledges these
        records to the leader, and they are then as durable as the topic promises. Raises KafkaError."""
        self._require_role()
        self._partition.when_flushed(self.handle.open().log_end_offset, then)

    def note_gaps(self, then: OnOutcome) -> None:
        """Call back as soon as the entry that this log has gaps is durable, or with the error if writing it fails."""
        log = self.handle.open()
        if log is self._gaps_noted:
            then(ErrorCode.NONE)
            return

        def noted(code: ErrorCode) -> None:
            if code == ErrorCode.NONE:
                self._gaps_noted = log
            then(code)

        self._services.note_gaps(self.handle, log, noted)

    def truncate_to(self, offset: int, then: OnOutcome) -> None:
        """Cut off all records from `offset` on. `then` is called when that is durable, or with the error. Raises
        KafkaError."""
        self._require_role()
        self._services.truncate(self.handle, offset, then)

    def start_over(self, offset: int, then: OnOutcome) -> None:
        """Delete all records, so that the log is empty at `offset`. `then` as in `truncate_to`. Raises KafkaError."""
        self._require_role()
        self._services.start_over(self.handle, offset, then)

    def _require_role(self) -> None:
        if self.is_over:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.handle}: the leader epoch is over")

    def _failed(self, error: StorageError) -> KafkaError:
        self._services.directory_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.handle}: {error}")
