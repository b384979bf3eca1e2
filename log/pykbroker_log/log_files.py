"""The files of one log: its segments, the active one, the retired ones, and its side files.

Responsible for how segments are added and removed, which files a flush has to fsync, the folder, and whether its disk
still works. Not responsible for the log's offsets and what readers may see, nor for when any of this happens
(partition_log.py), nor for the contents of the files (segment.py, side_files.py).

Invariants:
* The active segment is the last one, the only one that grows.
* A failure after which files and memory may differ is final: nothing is appended before the next start.
* Each step that removes bytes begins with `FlushState.cut`, so that a flush under way does not count the removed bytes
  as durable.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from pykbroker_log.deletion import Deletion, Retired
from pykbroker_log.disk import Disk, File, parent_of
from pykbroker_log.flush_state import Flush, FlushState
from pykbroker_log.log_config import LogConfig, StorageError, is_full
from pykbroker_log.segment import Segment
from pykbroker_log.segments import Segments
from pykbroker_log.side_files import SideFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykbroker_log.log_loading import LoadedLog
    from pykbroker_log.producers import ProducerStates


class LogFiles:
    active: Segment

    __slots__ = (
        "active",
        "deletion",
        "disk",
        "failure",
        "flushing",
        "is_closed",
        "is_cutting",
        "path",
        "segments",
        "side",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.segments = Segments()
        self.side = SideFiles(disk, path)
        self.deletion = Deletion(disk)
        self.flushing = FlushState()
        #: the error that ended all appends, if there was one
        self.failure: OSError | None = None
        self.is_closed = False
        #: a truncation is under way, perhaps on a thread, and only it uses the files (truncation.py)
        self.is_cutting = False

    def adopt(self, loaded: LoadedLog, *, is_gapless: bool) -> None:
        """Take over the segments and side files that a start has found in the folder."""
        self.segments = Segments(loaded.segments, is_gapless=is_gapless)
        self.active = loaded.segments[-1]
        self.side.snapshots = tuple(loaded.snapshots)
        self.side.found_unsynced(loaded.rewritten)

    @property
    def log_dir(self) -> str:
        return parent_of(self.path)

    @property
    def first_stored_offset(self) -> int:
        """The base offset of the oldest segment whose files are not yet renamed for their deletion."""
        return self._all()[0].base_offset

    def _all(self) -> list[Segment]:
        """Return all segments, and the retired segments whose files are not yet renamed for their deletion."""
        return [*(retired.segment for retired in self.deletion.retired), *self.segments]

    # -- when the disk fails

    @property
    def is_open(self) -> bool:
        """True if the log is neither closed nor being cut."""
        return not (self.is_closed or self.is_cutting)

    @property
    def is_sound(self) -> bool:
        """True if the log is open and its disk has not failed."""
        return self.is_open and self.failure is None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn an OSError inside into a StorageError, and stop appends unless the disk is only full."""
        try:
            yield
        except OSError as error:
            if not is_full(error):
                self.failure = error
            raise StorageError(self.log_dir, error) from error

    def failed(self, error: OSError) -> StorageError:
        """Stop appends until the next start, because files and memory may differ. Returns the error to raise."""
        self.failure = error
        return StorageError(self.log_dir, error)

    def flush_failed(self, error: OSError) -> StorageError:
        """Stop appends until the next start, because a flush, a stop or a truncation failed. Returns the error to
        raise."""
        self.failure = error
        return StorageError(self.log_dir, error, is_final=True)

    def write_failed(self, error: OSError, end_offset: int) -> StorageError:
        """Cut off the bytes that a failed write may have left after the log's end, so that no unacknowledged record can
        be read. If that fails too, stop appends. Returns the error to raise."""
        try:
            self.active.drop_tail(end_offset)
        except OSError as failure:
            self.failure = failure
        return StorageError(self.log_dir, error, is_final=self.failure is not None)

    # -- segments come

    def roll(
        self, base_offset: int, config: LogConfig, now_ms: int, producers: ProducerStates, log_start_offset: int
    ) -> None:
        """Begin a new segment, and write a snapshot of the producers before it. Raises OSError."""
        active = self.active
        if active.size:
            active.seal()
        elif base_offset == active.base_offset:
            return
        else:
            # Nothing was ever written to this segment; only its base offset is wrong.
            self.segments.pop()
            active.remove()
        self.side.take_snapshot(producers, log_start_offset)
        self.active = self._new_segment(base_offset, config, now_ms)
        self.segments.append(self.active)

    def _new_segment(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        interval = config.index_interval_bytes
        segment = Segment(self.disk, self.path, base_offset, index_interval_bytes=interval, now_ms=now_ms)
        self.side.names_changed()
        if segment.size:
            # The file is left over from records that were truncated away.
            segment.reset()
        else:
            segment.txn_index.reset()
        if config.preallocate:
            segment.preallocate(config.segment_bytes)
        return segment

    # -- segments go

    def retire(self, count: int) -> None:
        """Remove the `count` oldest segments from the log, but not the last one; see deletion.py for their files."""
        leaving = pairwise(self.segments[: count + 1])
        self.deletion.retired += tuple(Retired(segment, after.base_offset) for segment, after in leaving)
        del self.segments[:count]
        self.segments.forget()

    def cut(self, offset: int) -> None:
        """Cut off the batch that contains `offset` and everything after it. Raises OSError."""
        while self.segments[-1].base_offset > offset:
            self.segments.pop().remove()
        self.active = self.segments[-1]
        self.active.truncate_to(offset)

    def start_over(self, offset: int, config: LogConfig) -> None:
        """Remove all segments; an empty one begins at `offset`. Raises OSError."""
        # Remove the newest segment first, and the oldest one only when the removal of the others is durable. So the
        # segments that a crash leaves may end early, but they begin where the log began.
        first, *later = self._all()
        for segment in reversed(later):
            segment.remove()
        if later:
            self.disk.fsync_dir(self.path)
        first.remove()
        self.deletion.retired = ()
        self.active = self._new_segment(offset, config, self.flushing.last_ms)
        self.segments = Segments([self.active])

    def sync_cut(self) -> None:
        """Make the truncation durable, even if a flush runs at the same time. Raises OSError, StorageError."""
        self.active.write_indexes()
        try:
            self.active.fsync()
            self.active.fsync_indexes()
            self.side.sync()
        except OSError as error:
            raise self.flush_failed(error) from error

    # -- flush

    @property
    def generation(self) -> int:
        """A number that changes with every truncation."""
        return self.flushing.generation

    @property
    def recovery_point(self) -> int:
        """Everything before this offset has been fsynced."""
        return self.flushing.recovery_point

    def begin_flush(self, end_offset: int, *, again: bool) -> Flush:
        """See PartitionLog.begin_flush. The caller has read `end_offset` before this call. Raises StorageError."""
        # The end offset is noted before the files are collected (flush_state.py).
        active = self.active
        # A crash can bring back a retired segment that still has its name. And the segment that ends at the recovery
        # point may have been sealed, and its index written, after the flush that set the recovery point.
        candidates = Segments(self._all())
        paths, folders = self.side.take_unsynced(again=again)
        files: list[File] = []
        try:
            for segment in candidates.reaching_past(self.recovery_point, inclusive=True):
                # The active segment is scanned after every crash; a sealed one only above the recovery point.
                if not segment.gone:
                    files += segment.unsynced_files(sealed=segment is not active)
        except OSError as error:
            raise self.flush_failed(error) from error
        return Flush(self.generation, end_offset, paths, folders, files)

    def end_flush(self, flush: Flush) -> None:
        """Raise the recovery point to the end of the flush, unless a truncation began after it. Raises StorageError if
        the log's folder was gone."""
        if flush.missing is not None and not self.is_closed:
            raise self.flush_failed(flush.missing) from flush.missing
        self.flushing.end(flush)

    # -- the folder

    def move_to(self, path: str) -> None:
        """Rename the folder. Raises OSError."""
        segments = self._all()
        # A flush that is under way no longer finds its files.
        self.flushing.cut(self.recovery_point)
        for segment in segments:
            segment.close()
        self.disk.rename(self.path, path)
        self.path = path
        for segment in segments:
            segment.move_to(path)
        self.deletion.move_to(path)
        self.side.move_to(path)

    def close(self) -> None:
        self.is_closed = True
        for segment in self._all():
            segment.close()

    def delete(self) -> None:
        """Remove the folder and all files in it. Buffers that were read from it stay valid. Raises OSError."""
        for name in self.disk.list(self.path):
            self.disk.unlink(f"{self.path}/{name}")
        self.disk.remove_dir(self.path)
