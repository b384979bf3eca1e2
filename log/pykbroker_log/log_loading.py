"""Opening a partition's folder: makes a log of the files that a crash or a stop has left.

Responsible for Apache Kafka's start-up algorithm for one folder: orphan files, the scan after an unclean stop, leader
epochs and producer state. Not responsible for leftovers of a deletion or a compaction (leftovers.py), nor for when a
folder is loaded: PartitionLog.open loads it, or a worker process does (recovery_job.py), which receives the progress.

Invariants:
* After a clean stop no batch is read beyond the last index entry, and no file of a sealed segment is opened: one
  listing of the folder returns the files and their sizes.
* After an unclean stop every segment that reaches past the recovery point is checked batch by batch, and so is the
  active segment in any case. The log ends at the first bytes that are no batch. These bytes and everything after them
  are removed, and kept aside if they contain whole batches (quarantine.py).
* In a log with a guard, records are cut off or removed only if the guard allows it.
* A damaged side file (index, snapshot, epochs) is rebuilt from the log and never stops the node.
* Batches of magic 0 and 1 are never cut off: the log is refused with an OSError (old_batches.py).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Generator
from dataclasses import dataclass, field

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, decode_epochs
from pykbroker_log.cut_guard import CutGuard, DamagedLog
from pykbroker_log.disk import Disk, read_file
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.leftovers import ParsedName, finish_leftovers, is_leftover, parse_names, unlink_segment
from pykbroker_log.log_config import LogConfig
from pykbroker_log.missing import Left, missing_records
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.old_batches import refuse_old_batch
from pykbroker_log.producer_loading import ProducerLoader
from pykbroker_log.producers import ProducerStates
from pykbroker_log.quarantine import find_batch, keep_aside, quarantine_name
from pykbroker_log.scan import Scanned
from pykbroker_log.segment import Segment
from pykbroker_log.time_index import TimeIndex
from pykbroker_wire.records.batch import BatchHeader, CorruptBatch

logger = logging.getLogger(__name__)

#: An interrupted truncation was emptying the log to start it again at an offset in the middle of its records.
_STARTED_AFRESH = "begins where the log was being started afresh"


@dataclass(slots=True)
class LoadedLog:
    segments: list[Segment]
    epochs: LeaderEpochs
    log_end_offset: int
    snapshots: list[int]
    #: the snapshots that were written during loading, without fsync
    rewritten: set[int]
    recovery: str | None = None
    #: warnings for the operator
    warnings: list[str] = field(default_factory=list)
    aborts: bool = False


@dataclass(slots=True)
class _Work:
    """The work that recovery has done, for its one log line."""

    segments: int = 0
    batches: int = 0
    from_offset: int = -1
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def summary(self) -> str | None:
        if not self.segments and not self.notes and not self.warnings:
            return None
        scanned = f"checked {self.batches} batches in {self.segments} segments from offset {self.from_offset}"
        return "; ".join([scanned, *self.notes])


class LogLoader:
    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        config: LogConfig,
        producers: ProducerStates,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        dense: bool = False,
        is_new: bool = False,
        guard: CutGuard | None = None,
    ) -> None:
        self.dense = dense
        self.guard = guard
        self.is_new = is_new
        self.disk = disk
        self.path = path
        self.config = config
        self.producers = ProducerLoader(disk, path, producers, now_ms=now_ms, log_start_offset=log_start_offset)
        self.now_ms = now_ms
        self.clean = clean
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.work = _Work(warnings=self.producers.warnings)
        #: the size of every file in the folder
        self.sizes: dict[str, int] = {}
        self.segments: list[Segment] = []
        self.with_aborts: set[int] = set()
        # Base offsets of segments that have an index but no log file.
        self.orphans: list[int] = []

    def load(self) -> LoadedLog:
        """Load the whole log at once, and log the warnings."""
        steps = self.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                loaded: LoadedLog = end.value
                for warning in loaded.warnings:
                    logger.warning("%s: %s", self.path, warning)
                return loaded
            except DamagedLog:
                for segment in self.segments:
                    segment.close()
                raise

    def steps(self) -> Generator[int, None, LoadedLog]:
        """Load the log in steps. Yields the number of bytes that were checked since the last step. Raises OSError."""
        try:
            return (yield from self._steps())
        except CorruptBatch:
            for segment in self.segments:
                refuse_old_batch(segment.file, segment.path(names.LOG), 0)
            raise

    def _steps(self) -> Generator[int, None, LoadedLog]:
        found = [] if self.is_new else self._list()
        if any(is_leftover(name, parsed) for name, parsed in found):
            self.work.notes += finish_leftovers(self.disk, self.path, found)
            found = self._list()
        self._open_segments([parsed for _, parsed in found if parsed])
        epochs, epochs_lost = self._load_epochs()
        log_end_offset = yield from self._check_segments(epochs)
        if self.guard is not None:
            self.guard.before_cut(f"{self.path} ends at offset {log_end_offset}", log_end_offset, is_followed=False)
        if log_end_offset < self.log_start_offset:
            # The records up to the log start were deleted by a request, and the crash removed the rest.
            self.work.notes.append(
                f"the log ended at {log_end_offset}, before its start {self.log_start_offset}, so it is empty now"
            )
            log_end_offset = self._start_empty(self.log_start_offset)
        epochs.truncate_end(log_end_offset)
        earliest = epochs.earliest()
        is_tiered = self.config.is_tiered
        local_start = max(self.log_start_offset, self.segments[0].base_offset)
        self.work.warnings += missing_records(
            Left(
                segments=[(segment.base_offset, segment.size) for segment in self.segments],
                orphans=self.orphans,
                first_epoch_start=earliest[1] if earliest else None,
                # Records before the local start of a tiered log are in the remote tier.
                log_start_offset=local_start if is_tiered else self.log_start_offset,
                log_end_offset=log_end_offset,
                clean=self.clean,
                dense=self.dense,
            )
        )
        # The epochs of records that are only in the remote tier are kept.
        start = self.log_start_offset if is_tiered else local_start
        epochs.truncate_start(start)
        earliest = epochs.earliest()
        if epochs_lost or (earliest[1] if earliest else log_end_offset) > start:
            # If the epochs are not lost, they were written for a later log start, which a crash has undone.
            epochs = self._rebuild_epochs(LeaderEpochs() if epochs_lost else epochs, start)
        self.producers.drop_strays(self.segments, log_end_offset)
        if log_end_offset == local_start:
            # Nothing is left: the next producer may begin with any sequence number, as in Apache Kafka.
            self.producers.states.clear(local_start)
        self.producers.catch_up(self.segments, log_end_offset)
        return LoadedLog(
            self.segments,
            epochs,
            log_end_offset,
            self.producers.snapshots,
            self.producers.rewritten,
            self.work.summary(),
            self.work.warnings,
            bool(self.with_aborts),
        )

    # -- files

    def _list(self) -> list[ParsedName]:
        self.sizes = dict(self.disk.scan(self.path))
        return parse_names(self.sizes)

    def _open_segments(self, found: list[names.SegmentName]) -> None:
        bases = sorted(entry.base_offset for entry in found if entry.kind == names.LOG)
        known = set(bases)
        self.with_aborts = {base for base in known if self._size_of(base, names.TXN_INDEX)}
        for entry in found:
            if entry.kind != names.SNAPSHOT and entry.base_offset not in known:
                if entry.kind == names.OFFSET_INDEX:
                    self.orphans.append(entry.base_offset)
                self.disk.unlink(f"{self.path}/{names.segment_file(entry.base_offset, entry.kind)}")
        self.producers.found(entry.base_offset for entry in found if entry.kind == names.SNAPSHOT)
        while len(bases) > 1 and bases[1] <= self.log_start_offset:
            # Retention was about to delete this segment.
            unlink_segment(self.disk, self.path, bases.pop(0))
        if not bases and self.guard is not None:
            # Ask before a file is created.
            self.guard.before_cut(f"{self.path} has no segment", self.log_start_offset, is_followed=False)
        self.segments = [self._segment(base) for base in bases] or [self._segment(self.log_start_offset)]

    def _size_of(self, base: int, suffix: str) -> int | None:
        return self.sizes.get(names.segment_file(base, suffix))

    def _segment(self, base: int) -> Segment:
        return Segment(
            self.disk,
            self.path,
            base,
            index_interval_bytes=self.config.index_interval_bytes,
            now_ms=self.now_ms,
            size=self._size_of(base, names.LOG),
        )

    def _start_empty(self, offset: int) -> int:
        for segment in self.segments:
            segment.close()
            unlink_segment(self.disk, self.path, segment.base_offset)
            self.sizes.pop(names.segment_file(segment.base_offset, names.LOG), None)
        self.producers.states.clear(offset)
        self.segments = [self._segment(offset)]
        return offset

    # -- segments

    def _check_segments(self, epochs: LeaderEpochs) -> Generator[int, None, int]:
        """Scan the segments that must be scanned; return the log end offset."""
        count = len(self.segments)
        if self.clean:
            scan = [index for index, segment in enumerate(self.segments) if self._is_suspect(segment)]
            if count - 1 not in scan and not self._ends_whole(self.segments[-1]):
                scan.append(count - 1)
        else:
            ends = [segment.base_offset for segment in self.segments[1:]]
            first = bisect_right(ends, self.recovery_point)
            if first > 0 and ends[first - 1] == self.recovery_point and not self.segments[first - 1].has_whole_index():
                # All its records were flushed, but the segment may have been sealed, and its index written, after the
                # flush.
                first -= 1
            scan = [index for index in range(first) if self._has_lost_index(self.segments[index])]
            scan += list(range(first, count))
        if scan:
            self.work.from_offset = self.segments[scan[0]].base_offset
            self.producers.load(self.segments, self.work.from_offset, is_scan=True)
            if self.guard is not None:
                # The file of the epochs has no checksum, so read them again from the batches.
                epochs.truncate_end(self.work.from_offset)
        for index in scan:
            if not (yield from self._scan(index, epochs)):
                break
        if scan and not self.clean:
            # The snapshots above the scan's start, which the crash left, may belong to records that are gone.
            self.producers.drop_after(self.work.from_offset)
        return self._end_of(-1)

    def _has_lost_index(self, segment: Segment) -> bool:
        """Return True if a sealed segment has lost an index in a crash, or only the index's name is left. Sealing
        writes at least one entry, unless the records have no timestamps."""
        if self._misses_index(segment) or self._has_torn_index(segment):
            return True
        has_entries = self._size_of(segment.base_offset, names.TIME_INDEX)
        return segment.size > 0 and not has_entries and segment.first_timestamp >= 0

    def _is_suspect(self, segment: Segment) -> bool:
        """Return True if an index is missing or malformed after a clean stop. For sealed segments only the sizes are
        checked: an index with wrong entries is noticed when it is first used."""
        if self._misses_index(segment):
            # The segment is empty and was just created, or it has lost its index.
            return segment.size > 0
        return self._has_torn_index(segment)

    def _misses_index(self, segment: Segment) -> bool:
        kinds = (names.OFFSET_INDEX, names.TIME_INDEX)
        return any(self._size_of(segment.base_offset, kind) is None for kind in kinds)

    def _has_torn_index(self, segment: Segment) -> bool:
        """Return True if an index ends in part of an entry, or the aborted transactions cannot be valid."""
        base = segment.base_offset
        if base in self.with_aborts and not segment.txn_index.is_sane(base):
            return True
        offsets, times = self._size_of(base, names.OFFSET_INDEX) or 0, self._size_of(base, names.TIME_INDEX) or 0
        return bool(offsets % OffsetIndex.ENTRY.size or times % TimeIndex.ENTRY.size)

    def _scan(self, index: int, epochs: LeaderEpochs) -> Generator[int, None, bool]:
        """Check one segment. Return False if the log ends in it."""
        segment = self.segments[index]
        if index > 0 and (why := self._why_out_of_line(index)):
            if self.guard is not None:
                yield from self._ask_guard(index, 0, min(segment.base_offset, self._end_of(index - 1)), why)
            self.work.notes.append(f"the segment at offset {segment.base_offset} {why}")
            yield from self._remove_from(index, keep=why != _STARTED_AFRESH)
            return False
        refuse_old_batch(segment.file, segment.path(names.LOG), 0)
        producers = self.producers.states
        self.producers.catch_up(self.segments, segment.base_offset)
        if segment.base_offset > self.work.from_offset:
            self.producers.rewrite(segment.base_offset)

        guard = self.guard

        def visit(header: BatchHeader, batch: memoryview) -> str:
            if guard is not None and (why := guard.judge(header, batch)):
                return why
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.last_offset >= producers.map_end_offset:
                aborted = producers.replay(header, batch)
                if aborted is not None:
                    self.with_aborts.add(segment.base_offset)
                    segment.txn_index.append(aborted)
            return ""

        is_flushed = index + 1 < len(self.segments) and self.segments[index + 1].base_offset <= self.recovery_point
        if is_flushed:
            segment.begin_rebuild()
        result = yield from segment.recover(visit, is_gapless=guard is not None)
        producers.map_end_offset = max(producers.map_end_offset, result.next_offset)
        self.work.segments += 1
        self.work.batches += result.batches
        if result.excess_bytes:
            refuse_old_batch(segment.file, segment.path(names.LOG), segment.size)
            if guard is not None:
                yield from self._ask_guard(index, segment.size, result.next_offset, result.reason)
            yield from self._tell_of_damage(segment, result)
        segment.end_at(segment.size)
        if is_flushed:
            segment.end_rebuild()
        if not result.excess_bytes:
            return True
        if index + 1 < len(self.segments):
            yield from self._remove_from(index + 1, keep=True)
        return False

    def _ask_guard(self, index: int, position: int, offset: int, why: str) -> Generator[int, None, None]:
        """Ask before the log is cut off at a position of a segment. Raises DamagedLog."""
        assert self.guard is not None
        is_followed = False
        for segment in self.segments[index:]:
            size = segment.file.size()
            start = position if segment is self.segments[index] else 0
            found = yield from find_batch(segment.file, start, size, segment.offsets_from(offset))
            is_followed = is_followed or found >= 0
        where = f"{self.segments[index].path(names.LOG)} at position {position}, offset {offset}: {why}"
        self.guard.before_cut(where, offset, is_followed=is_followed)

    def _end_of(self, index: int) -> int:
        """Return the end offset of the last whole batch of a segment. A segment that is not scanned may be damaged;
        then return its base offset: its records exist elsewhere too, or a reader gets an error."""
        try:
            return self.segments[index].whole_end()[1]
        except CorruptBatch:
            return self.segments[index].base_offset

    def _ends_whole(self, segment: Segment) -> bool:
        """Return True if only whole batches come after the last index entry. Appends go to the end of the file, so it
        must not end in part of a batch."""
        try:
            return segment.whole_end()[0] == segment.size
        except CorruptBatch:
            return False

    def _tell_of_damage(self, segment: Segment, result: Scanned) -> Generator[int, None, None]:
        """Keep aside the bytes that are about to be cut off, if they are more than the torn end of a write."""
        log, position = names.segment_file(segment.base_offset, names.LOG), segment.size
        end = position + result.excess_bytes
        offsets = segment.offsets_from(result.next_offset)
        place = f"position {position}, offset {result.next_offset}: {result.reason}"
        if (yield from find_batch(segment.file, position, end, offsets)) < 0:
            self.work.notes.append(f"cut {result.excess_bytes} bytes off {log} at {place}")
            return
        aside = quarantine_name(segment.base_offset, position, self.now_ms)
        yield from keep_aside(self.disk, segment.file, position, end, f"{self.path}/{aside}")
        self.work.warnings.append(
            f"{log} is damaged at {place}. The log ends there now. The {result.excess_bytes} bytes that follow contain "
            f"whole batches, so they are kept in {aside}"
        )

    def _why_out_of_line(self, index: int) -> str:
        """Return why a segment does not follow the one before it, or "" if it does. If it does not, records above the
        recovery point are missing, or records exist twice.

        Power loss may remove a whole file or its end and leave the next file. Below the recovery point no record can be
        missing, and a compacted log may have gaps.
        """
        if self.clean:
            return ""
        segment = self.segments[index]
        end = self._end_of(index - 1)
        if end > segment.base_offset:
            return _STARTED_AFRESH
        is_gap = self.dense and segment.base_offset > self.recovery_point and end < segment.base_offset
        return f"does not follow the one before it, which ends at {end}" if is_gap else ""

    def _remove_from(self, index: int, *, keep: bool) -> Generator[int, None, None]:
        """Remove segments from the log. With `keep`, the segments that contain whole batches are kept aside."""
        removed = self.segments[index:]
        del self.segments[index:]
        kept = []
        for segment in removed:
            offsets = segment.offsets_from(segment.base_offset)
            has_batches = keep and (yield from find_batch(segment.file, 0, segment.size, offsets)) >= 0
            segment.close()
            if has_batches:
                aside = quarantine_name(segment.base_offset, 0, self.now_ms)
                self.disk.rename(segment.path(names.LOG), f"{self.path}/{aside}")
                kept.append(aside)
            unlink_segment(self.disk, self.path, segment.base_offset)
        self.work.notes.append(f"removed {len(removed)} segments from offset {removed[0].base_offset} on")
        if kept:
            others = f" and {len(kept) - 1} more files with that suffix" if len(kept) > 1 else ""
            self.work.warnings.append(
                f"the segments from offset {removed[0].base_offset} on do not follow the end of the log, so they are "
                f"removed from it. {len(kept)} of them contain whole batches and are kept as {kept[0]}{others}"
            )

    # -- epochs

    def _load_epochs(self) -> tuple[LeaderEpochs, bool]:
        path = f"{self.path}/{names.LEADER_EPOCHS}"
        has_records = len(self.segments) > 1 or self.segments[0].size > 0
        if self.is_new or not self.disk.exists(path):
            return LeaderEpochs(), has_records
        try:
            epochs = LeaderEpochs(decode_epochs(read_file(self.disk, path)))
            # An empty file is valid; it may also be what a crash leaves of a file that was not fsynced.
            return epochs, has_records and epochs.earliest() is None
        except MalformedFile as error:
            set_aside(self.disk, path, self.now_ms, str(error))
            self.work.notes.append(f"rebuilt {names.LEADER_EPOCHS}")
            return LeaderEpochs(), True

    def _rebuild_epochs(self, known: LeaderEpochs, start: int) -> LeaderEpochs:
        """Read from the batches the epochs before the first known one."""
        earliest = known.earliest()
        rebuilt = LeaderEpochs()
        for segment in self.segments:
            if earliest is not None and segment.base_offset >= earliest[1]:
                break
            for _, header in segment.walk(0):
                if header.partition_leader_epoch < 0 or (earliest is not None and header.base_offset >= earliest[1]):
                    break
                if header.partition_leader_epoch > rebuilt.latest and header.last_offset >= start:
                    rebuilt.assign(header.partition_leader_epoch, max(header.base_offset, start))
        for epoch, offset in known.entries():
            rebuilt.assign(epoch, offset)
        rebuilt.dirty = True
        return rebuilt


def set_aside(disk: Disk, path: str, now_ms: int, why: str) -> None:
    """Rename a malformed file, so that an administrator can look at it and the start goes on."""
    target = f"{path}.corrupt-{now_ms}"
    logger.warning("%s is malformed (%s). It is rebuilt, and the old file is kept as %s", path, why, target)
    disk.rename(path, target)
