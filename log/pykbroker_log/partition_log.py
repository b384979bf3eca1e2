"""A partition's log: its records, its producers, and the offsets that bound what readers may see.

Responsible for appending as leader and as follower, reading, truncating, retiring old segments, and keeping producers
and epochs in step with the bytes. Not responsible for what a valid batch is (validate.py), for the files and their
durability (log_files.py), nor for when a segment is full (rolling.py). The caller decides when to flush and to retire,
passes the bound of a read, and moves the high watermark.

Invariants:
* log_start_offset <= local_log_start_offset. They differ only in a tiered log, and then the records between them are
  only in remote storage.
* log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; recovery_point <= log_end_offset.
* The offset of an append follows the last one without a gap. The state in memory is never ahead of the file.
* A write that failed counts for nothing: its bytes are cut off again, and if even that fails the log takes no more
  appends. A failed fsync is final, whatever its error (flush_state.py).
* Everything runs on one thread, except three calls. `flush` and `flushing.sync` may run on another thread during
  appends and all other calls. `Truncation.run` may run on another thread, but during it no other call runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from pykbroker_log import rolling
from pykbroker_log.disk import Buffer, ColdRead, Disk
from pykbroker_log.earlier_batches import repeated
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.flush_state import Flush, FlushState, sync
from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.log_config import AppendOrigin, LogConfig, StorageError
from pykbroker_log.log_files import LogFiles
from pykbroker_log.log_loading import LogLoader
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS, ProducerDecision, ProducerStates
from pykbroker_log.reading import Bounds, read_batches
from pykbroker_log.replacement import CleanablePart, Replacement
from pykbroker_log.results import AppendInfo, ReadResult
from pykbroker_log.retention import Breach, breached
from pykbroker_log.segment import BatchMark, Segment
from pykbroker_log.side_files import InconsistentTopicId
from pykbroker_log.stopping import close_together
from pykbroker_log.truncation import Truncation
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_log.validate import CheckedBatch, given_batches, validate
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import BatchHeader, CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker_log.compaction import CleanerMemory
    from pykbroker_log.cut_guard import CutGuard
    from pykbroker_log.time_search import TimedRecord, TimeSearch

__all__ = ["AppendInfo", "AppendOrigin", "InconsistentTopicId", "PartitionLog", "ReadResult", "StorageError"]


logger = logging.getLogger(__name__)
_NOTHING_MISSING = range(0)


class Keeper(Protocol):
    """The owner of the checkpoints that contain a log's offsets."""

    def before_truncation(self, log: PartitionLog) -> list[Callable[[], None]]:
        """Return the writes that must be done before a truncation changes the files. When this is called, the log's
        recovery point and log start already have their new values.

        If a checkpoint kept a recovery point that is too high, the scan after a crash would skip records that were
        appended later. If it kept a log start that is too high, readers would not see the records below it. If it kept
        one that is too low, a power loss could bring back some of the removed files below the real log start."""


class PartitionLog:
    __slots__ = (
        "_aborts",
        "_replacement",
        "config",
        "epochs",
        "files",
        "high_watermark",
        "keeper",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "missing_behind_end",
        "partition",
        "producers",
        "recovery",
        "topic",
        "topic_id",
    )

    def __init__(self, disk: Disk, path: str, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> None:
        """Callers use `open` instead."""
        self.files = LogFiles(disk, path)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        self.local_log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery: str | None = None
        #: offsets that an earlier run had flushed or committed, and that are missing now
        self.missing_behind_end = _NOTHING_MISSING
        #: the owner of the checkpoints with this log's offsets; None if there are none
        self.keeper: Keeper | None = None
        # True if any segment's transaction index may have an entry.
        self._aborts = False
        # The compaction that is under way, or None.
        self._replacement: Replacement | None = None

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    # -- open and close

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
        dense: bool = False,
        guard: CutGuard | None = None,
    ) -> PartitionLog:
        """Open the log in `path`, and create it if it does not exist. Raises StorageError, InconsistentTopicId; with a
        guard, DamagedLog.

        `dense` means that the log was never compacted, and that its start is durable before files are deleted. Then a
        gap between segments means that a power loss removed records, and the later segments are not kept.
        """
        log = cls(disk, path, topic, partition, topic_id, config)
        log.producers.expiration_ms = producer_id_expiration_ms
        files = log.files
        with files.guarded():
            is_new = not disk.exists(path)
            if is_new:
                disk.make_dirs(path)
            files.side.check_topic_id(topic_id, now_ms)
            loaded = LogLoader(
                disk,
                path,
                config=config,
                producers=log.producers,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                dense=dense,
                is_new=is_new,
                guard=guard,
            ).load()
            files.adopt(loaded, is_gapless=dense)
            log._aborts = loaded.aborts
            log.epochs = loaded.epochs
            log.log_end_offset = loaded.log_end_offset
            log.local_log_start_offset = max(log_start_offset, loaded.segments[0].base_offset)
            log.log_start_offset = log_start_offset if config.is_tiered else log.local_log_start_offset
            log.recovery = loaded.recovery
            if config.preallocate and files.active.size == 0:
                files.active.preallocate(config.segment_bytes)
            files.flushing = FlushState(now_ms, min(recovery_point, log.log_end_offset))
            log.high_watermark = log.log_start_offset
            log.set_high_watermark(high_watermark)
            if loaded.recovery is not None:
                files.side.take_snapshot(log.producers, log.log_start_offset)
            files.side.write_epochs(log.epochs)
        return log

    def close(self, *, clean: bool) -> None:
        """Close the files. With `clean`, make everything durable first, so that the next start scans nothing."""
        files = self.files
        if files.is_closed:
            return
        if clean and files.is_sound:
            close_together(files.disk, files.log_dir, [self])
        files.close()

    def delete_files(self) -> None:
        """Remove the folder and all files in it. Buffers that were read from it stay valid. Raises StorageError."""
        self.close(clean=False)
        with self.files.guarded():
            self.files.delete()

    # -- state

    @property
    def name(self) -> str:
        """The prefix of log lines about this log."""
        return f"Partition {self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        return self.files.path

    @property
    def recovery_point(self) -> int:
        """Everything before this offset has been fsynced."""
        return self.files.recovery_point

    @property
    def size_bytes(self) -> int:
        return self.files.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.transactions.first_unstable
        watermark = self.high_watermark
        if unstable < 0 or unstable >= watermark:
            return watermark
        return max(unstable, self.log_start_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, limited to the log's start and end. The caller computes it, because only the caller
        knows the replicas."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        transactions = self.producers.transactions
        if transactions.first_unstable >= 0:
            transactions.replicated(offset)

    # -- append

    def append_as_leader(
        self,
        records: Buffer | CheckedBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: object | None = None,
        transaction_version: int = 0,
        at_once: bool = False,
    ) -> AppendInfo:
        """Check one batch, give it the next offsets and write it. Raises KafkaError, RecordErrors, StorageError.

        `at_once`: raise TooMuchAtOnce, with nothing changed, if the batch takes too long to check on an event loop, or
        was checked with another configuration than the log has now.
        `verification`: the guard of a batch that begins a transaction (ProducerStates.begin_verification).
        `transaction_version`: decides by which rules a marker's epoch is checked.
        """
        files = self.files
        if files.failure is not None or files.is_closed or files.is_cutting:
            raise self._refusal()
        if origin is AppendOrigin.RAFT_LEADER and not isinstance(records, CheckedBatch):
            return self._append_given(records, now_ms, verify=False)
        config = self.config
        offset = self.log_end_offset
        if isinstance(records, CheckedBatch):
            batch = records.under(config)
        else:
            batch = validate(records, config, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, at_once=at_once)
        batch.assign(offset, leader_epoch)
        data = batch.records
        size = len(data)
        last_offset = batch.last_offset
        max_timestamp = batch.max_timestamp
        producers = self.producers
        decision = None
        if batch.producer_id >= 0:
            try:
                decision = producers.judge(batch, origin, verification, transaction_version)
            except KafkaError as error:
                with files.guarded():
                    original = repeated(files.segments, producers, batch, error)
                return AppendInfo.of_repetition(original, self.log_start_offset, size, batch.record_count)
            if decision is not None and decision.is_repetition:
                return AppendInfo.of_repetition(decision.batch, self.log_start_offset, size, batch.record_count)
        try:
            if leader_epoch > self.epochs.latest:
                self.assign_epoch_start(leader_epoch, offset)
            segment = files.active
            if rolling.is_due(segment, config, size, last_offset, max_timestamp, now_ms):
                segment = self._next_segment(size, last_offset, offset, now_ms)
            if decision is not None and decision.aborted is not None:
                self._index_aborted(segment, decision.aborted)
            segment.append_batch(data, size, last_offset, max_timestamp)
        except OSError as error:
            raise files.write_failed(error, offset) from error
        self.log_end_offset = producers.map_end_offset = last_offset + 1
        if decision is not None:
            producers.apply(decision)
        return AppendInfo(
            offset,
            last_offset,
            max_timestamp,
            batch.log_append_time_ms,
            self.log_start_offset,
            size,
            batch.record_count,
        )

    def append_as_follower(self, records: Buffer, *, now_ms: int = 0) -> AppendInfo:
        """Write batches unchanged, without an incomplete batch at the end. Raises KafkaError, StorageError."""
        if not self.files.is_sound:
            raise self._refusal()
        return self._append_given(records, now_ms, verify=True)

    def _append_given(self, records: Buffer, now_ms: int, *, verify: bool) -> AppendInfo:
        view = memoryview(records)
        batches = given_batches(view, self.log_end_offset, verify=verify)
        first = self.log_end_offset
        done = 0
        try:
            while done < len(batches):
                done += self._append_group(view, batches[done:], now_ms)
        except OSError as error:
            raise self.files.write_failed(error, self.log_end_offset) from error
        if not batches:
            return AppendInfo(first, first - 1, -1, -1, self.log_start_offset, 0, 0)
        return AppendInfo(
            batches[0][1].base_offset,
            batches[-1][1].last_offset,
            max(header.max_timestamp for _, header in batches),
            -1,
            self.log_start_offset,
            sum(header.size_in_bytes for _, header in batches),
            sum(header.record_count for _, header in batches),
        )

    def _index_aborted(self, segment: Segment, aborted: AbortedTxn) -> None:
        """Add the index entry before the marker is written: an extra entry can be removed, a marker needs its entry."""
        self._aborts = True
        segment.txn_index.append(aborted)

    def _append_group(self, view: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int) -> int:
        """Write as many batches as fit into one segment, with one write. Return their number."""
        start, first = batches[0]
        segment = self.files.active
        if rolling.is_due(segment, self.config, first.size_in_bytes, first.last_offset, first.max_timestamp, now_ms):
            segment = self._next_segment(first.size_in_bytes, first.last_offset, first.base_offset, now_ms)
        room = self.config.segment_bytes - segment.size
        marks: list[BatchMark] = []
        decisions: list[ProducerDecision | None] = []
        size = 0
        for position, header in batches:
            if marks and (size + header.size_in_bytes > room or not segment.can_hold(header.last_offset)):
                break
            decision = self.producers.accepted(header, view[position : position + header.size_in_bytes])
            if marks and decision is not None and decision.marker is not None:
                # The transaction that this marker ends is known only when the batches before it are written.
                break
            decisions.append(decision)
            marks.append(BatchMark(header.size_in_bytes, header.last_offset, header.max_timestamp))
            size += header.size_in_bytes
        group = batches[: len(marks)]
        for _, header in group:
            if header.partition_leader_epoch > self.epochs.latest:
                self.assign_epoch_start(header.partition_leader_epoch, header.base_offset)
        if decisions[0] is not None and decisions[0].aborted is not None:
            self._index_aborted(segment, decisions[0].aborted)
        segment.append((view[start : start + size],), size, marks)
        for decision in decisions:
            if decision is not None:
                self.producers.apply(decision)
        self.log_end_offset = self.producers.map_end_offset = group[-1][1].next_offset
        return len(marks)

    def _next_segment(self, size: int, last_offset: int, base_offset: int, now_ms: int) -> Segment:
        """Return the segment for a batch that needs a new one. Raises KafkaError RECORD_LIST_TOO_LARGE, OSError."""
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes are more than segment.bytes {self.config.segment_bytes}"
            )
        active = self.files.active
        if active.size or not active.can_hold(last_offset):
            self._roll(base_offset, now_ms)
        return self.files.active

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is still empty. Raises StorageError, KafkaError when closed."""
        if not self.files.is_sound:
            raise self._refusal()
        try:
            self._roll(self.log_end_offset, now_ms)
        except OSError as error:
            raise self.files.write_failed(error, self.log_end_offset) from error

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self.files.roll(base_offset, self.config, now_ms, self.producers, self.log_start_offset)

    # -- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        *,
        min_one: bool = True,
        regions: bool = False,
        with_aborted: bool = False,
        wait: bool = True,
    ) -> ReadResult:
        """Read whole batches, from the batch that contains `offset` up to `upper_offset`. Read at most `max_bytes`.

        `min_one`: return the first batch even if it is larger. `regions`: slices may be regions (slices.py); these
        are not checked. `with_aborted`: also return the transactions that the reader must leave out. `wait`: wait for
        the device; otherwise bytes that are not in memory raise ColdRead. Raises KafkaError OFFSET_OUT_OF_RANGE,
        OFFSET_MOVED_TO_TIERED_STORAGE, CORRUPT_MESSAGE; StorageError; ColdRead.
        """
        end_offset = self.log_end_offset
        if offset < self.local_log_start_offset or offset > end_offset:
            raise self._out_of_range(offset)
        if upper_offset > end_offset:
            upper_offset = end_offset
        files = self.files
        if offset >= upper_offset or files.is_closed:
            return ReadResult([], 0, offset, offset, -1)
        if files.is_cutting:
            raise self._refusal()
        try:
            with nullcontext() if wait else files.disk.without_waiting():
                return read_batches(
                    files.segments,
                    self.epochs,
                    Bounds(upper_offset, self.high_watermark, end_offset),
                    offset,
                    max_bytes,
                    min_one=min_one,
                    regions=regions,
                    with_aborted=with_aborted and self._aborts,
                )
        except CorruptBatch as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        except OSError as error:
            raise StorageError(files.log_dir, error) from error

    def _out_of_range(self, offset: int) -> KafkaError:
        local_start = self.local_log_start_offset
        if self.log_start_offset <= offset < local_start:
            return KafkaError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"{self.topic}-{self.partition}: offset {offset} is before {local_start}, the local start",
            )
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}",
        )

    # -- by time

    def offset_for_timestamp(
        self, timestamp: int, *, wait: bool = True, search: TimeSearch | None = None
    ) -> TimedRecord | None:
        """Return the first record that is at least this new. Raises StorageError, ColdRead if not `wait`, and the
        errors of `TimeSearch.look`."""
        with self.files.guarded(), nullcontext() if wait else self.files.disk.without_waiting():
            return self.files.segments.first_at_least(timestamp, self.log_start_offset, search)

    def offset_of_max_timestamp(self, *, wait: bool = True, search: TimeSearch | None = None) -> TimedRecord | None:
        """Return the first record with the largest timestamp. Raises the errors of `offset_for_timestamp`."""
        with self.files.guarded(), nullcontext() if wait else self.files.disk.without_waiting():
            return self.files.segments.newest(search)

    # -- delete from the front

    def delete_records_before(self, offset: int, *, reason: str = "client delete records request") -> None:
        """Raise the log start (DeleteRecords). The next `retire` removes the segments below it. The new log start is
        durable after the next checkpoint of log starts. Raises OFFSET_OUT_OF_RANGE, StorageError."""
        if offset > self.high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self}: cannot delete up to {offset}, the high watermark is {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            with self.files.guarded():
                self._move_start(offset, reason)

    def _move_start(self, offset: int, reason: str) -> None:
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_start(offset)
        self.files.side.write_epochs(self.epochs)
        self.producers.on_log_start(offset)
        logger.info("%s: incremented log start offset to %d due to %s", self.name, offset, reason)

    def retire(self, now_ms: int, jumps: Jumps = NO_JUMPS, *, wait: bool = True) -> int:
        """Remove from the log the segments that retention no longer keeps; return their number. `purge` removes their
        files. Raises StorageError, and ColdRead unless `wait`; after a ColdRead nothing has changed."""
        files = self.files
        if not files.is_sound:
            return 0
        with files.guarded():
            with nullcontext() if wait else files.disk.without_waiting():
                found = self._breached(now_ms, jumps)
            if not found:
                return 0
            for segment, reason in found:
                logger.info("%s: deleting segment %s due to %s", self.name, segment, reason)
            count = len(found)
            if count == len(files.segments):
                self._roll(self.log_end_offset, now_ms)
            # Move the log start first, so that no reader begins in segments whose files are about to go.
            start = files.segments[count].base_offset
            if start > self.log_start_offset:
                self._move_start(start, "segment deletion")
            self.local_log_start_offset = max(self.local_log_start_offset, start)
            files.retire(count)
            return count

    def _breached(self, now_ms: int, jumps: Jumps) -> list[Breach]:
        try:
            return breached(
                self.files.segments,
                config=self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                jumps=jumps,
            )
        except ColdRead as cold:
            raise self.files.segments.cold_times(cold) from None

    def purge(self, now_ms: int, *, one_by_one: bool = False) -> list[str]:
        """Rename the retired segments that lie below the durable log start. If no log start can become durable, because
        the disk is full, the caller passes `one_by_one`: then all of them are renamed in order, each with an fsync.
        Return the files whose `file.delete.delay.ms` is over, for `deletion.delete_files`. Raises StorageError."""
        files = self.files
        if not files.is_sound:
            return []
        with files.guarded():
            files.deletion.take_names(files.side, now_ms + self.config.file_delete_delay_ms, one_by_one=one_by_one)
        return files.deletion.take_due(now_ms)

    # -- compact

    def begin_replacement(
        self, cleanable: CleanablePart, *, memory: CleanerMemory, seed: bytes, now_ms: int, jumps: Jumps = NO_JUMPS
    ) -> Replacement:
        """Begin a compaction, which `end_replacement` ends. A log has at most one at a time. The caller has flushed the
        log after it computed `cleanable`."""
        assert self._replacement is None, self
        self._replacement = Replacement(
            self.files,
            lambda: self.config,
            self.producers.entries,
            cleanable,
            memory=memory,
            seed=seed,
            now_ms=now_ms,
            jumps=jumps,
        )
        return self._replacement

    def end_replacement(self) -> None:
        """End the compaction, whether it was completed or not. Raises StorageError."""
        # A truncation that is under way abandons the compaction itself.
        if self._replacement is not None and self.files.is_open:
            with self.files.guarded():
                self._replacement.abandon()
        self._replacement = None

    # -- truncate

    def begin_truncate(self, offset: int) -> Truncation | None:
        """Begin to cut off everything from `offset` on, or return None if there is nothing. The caller runs `run` on a
        thread, then calls `end_truncate` (truncation.py). Raises StorageError, KafkaError when closed."""
        files = self.files
        if offset >= self.log_end_offset:
            if files.is_sound:
                # An epoch that begins at the log end has no records. It is removed, because the log of the new leader
                # may not have it.
                with files.guarded():
                    self.epochs.truncate_end(self.log_end_offset)
                    files.side.write_epochs(self.epochs)
            return None
        segments = files.segments
        if offset <= segments[0].base_offset:
            return self.begin_start_over(offset)
        if not files.is_sound:
            raise self._refusal()
        with files.guarded():
            # A batch is cut off as a whole, and in a compacted log the batch before it may end earlier still.
            end = segments[segments.index_of(offset)].end_before(offset)
        if end < self.log_start_offset <= offset:
            # The cut goes through the batch that contains the log start.
            return self.begin_start_over(self.log_start_offset)
        return self._begin_truncation(end, offset, log_start_offset=min(end, self.log_start_offset))

    def begin_start_over(self, offset: int) -> Truncation:
        """Begin to remove everything; the log will be empty and start at `offset`. Otherwise like `begin_truncate`."""
        if not self.files.is_sound:
            raise self._refusal()
        return self._begin_truncation(offset, None, log_start_offset=offset)

    def _begin_truncation(self, end_offset: int, cut_at: int | None, *, log_start_offset: int) -> Truncation:
        files = self.files
        starts_before = self.log_start_offset, self.local_log_start_offset
        files.flushing.cut(end_offset)
        files.segments.forget()
        if log_start_offset != self.log_start_offset:
            self.log_start_offset = self.local_log_start_offset = log_start_offset
        if self._replacement is not None:
            self._replacement.is_void = True
        files.is_cutting = True
        return Truncation(
            self,
            end_offset,
            cut_at,
            starts_before=starts_before,
            replacement=self._replacement,
            writes=[] if self.keeper is None else self.keeper.before_truncation(self),
        )

    def end_truncate(self, truncation: Truncation) -> None:
        """Open the log for use again. The caller knows from `run` whether it succeeded."""
        files = self.files
        files.is_cutting = False
        if not truncation.has_cut:
            # The files are unchanged, perhaps because the disk is full: the log stays as it is.
            self.log_start_offset, self.local_log_start_offset = truncation.starts_before
        self.set_high_watermark(min(self.high_watermark, self.log_end_offset))
        if files.is_closed:
            # The log was closed during the truncation: the files that the thread has opened are closed too.
            files.close()

    def truncate_to(self, offset: int) -> None:
        """Cut off everything from `offset` on, durably. Raises StorageError, KafkaError when closed."""
        truncation = self.begin_truncate(offset)
        if truncation is not None:
            self._carry_out(truncation)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, durably; the log starts at `offset`. Raises the errors of `truncate_to`."""
        self._carry_out(self.begin_start_over(offset))

    def _carry_out(self, truncation: Truncation) -> None:
        try:
            truncation.run()
        finally:
            self.end_truncate(truncation)

    # -- another folder

    def take_over(self, log: PartitionLog, path: str) -> None:
        """Replace `log` by this log, which contains all records of `log`. This log's folder is renamed to `path`. State
        that is only in memory moves too: producers with their latest batches and verifications. Records are durable if
        they were durable in both logs. After this call `log` may only be closed. Raises StorageError."""
        files = self.files
        with files.guarded():
            files.move_to(path)
            self.producers = log.producers
            self.epochs = log.epochs
            self.epochs.dirty = True
            files.side.write_epochs(self.epochs)
        self.set_high_watermark(log.high_watermark)
        if log.log_start_offset > self.log_start_offset:
            self.delete_records_before(log.log_start_offset)

    # -- epochs

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(leader_epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        self.epochs.assign(epoch, offset)
        with self.files.guarded():
            self.files.side.write_epochs(self.epochs)

    # -- flush

    def flush_due(self, now_ms: int) -> bool:
        """Return True if `flush.messages` or `flush.ms` requires a flush, or a sealed segment is not durable yet. After
        a crash no more than the active segment should need a scan."""
        flushing = self.files.flushing
        unflushed = self.log_end_offset - flushing.recovery_point
        if unflushed <= 0:
            flushing.last_ms = now_ms
            return False
        config = self.config
        if (
            unflushed >= config.flush_messages
            or now_ms - flushing.last_ms >= config.flush_ms
            or self.files.active.base_offset > flushing.recovery_point
        ):
            flushing.last_ms = now_ms
            return True
        return False

    def begin_flush(self, *, again: bool = False) -> Flush:
        """Collect the files to fsync so that the log is durable up to its present end. With `again`, include those that
        another flush is fsyncing now. Raises StorageError, KafkaError when closed."""
        if not self.files.is_sound:
            raise self._refusal()
        return self.files.begin_flush(self.log_end_offset, again=again)

    def begin_stop(self) -> Flush:
        """Like `begin_flush`, but with the active segment's indexes and the producers, so that the next start scans
        nothing. Nothing is appended afterwards. Raises StorageError."""
        files = self.files
        with files.guarded():
            files.active.seal()
            files.side.take_snapshot(self.producers, self.log_start_offset)
            indexes = files.active.unsynced_files(sealed=True)
        flush = self.begin_flush(again=True)
        flush.files = list(dict.fromkeys([*flush.files, *indexes]))
        return flush

    def flush(self, upto: int | None = None) -> None:
        """Make the log durable to its end, unless it is already durable up to `upto`. May run on another thread. Raises
        StorageError."""
        if upto is not None and upto <= self.recovery_point:
            return
        flush = self.begin_flush(again=True)
        try:
            sync(self.files.disk, self.files.log_dir, [flush])
        except OSError as error:
            raise self.files.flush_failed(error) from error
        self.files.end_flush(flush)

    def _refusal(self) -> Exception:
        files = self.files
        if files.failure is not None:
            return StorageError(files.log_dir, files.failure, is_final=True)
        if files.is_cutting:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{self.partition}: the log is being cut")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{self.partition}: the log is closed")
