"""The durable part of a log, and the passes that extend it.

A pass (`Flush`) has three steps. `PartitionLog.begin_flush` collects the files to fsync, on the thread that appends.
`sync` fsyncs them, for the passes of many logs at once and on any thread; or, if `only_files` returns open files, the
caller may fsync those in another way. `LogFiles.end_flush` raises the recovery point. Responsible for the recovery
point, for what a pass covers, and for the order of its calls. Not responsible for when a log is flushed, or on which
thread (the caller).

State and invariants:
* The recovery point: everything before it has been fsynced, with the names that lead to it. It rises when a pass ends
  and sinks when a truncation begins, before the disk is touched.
* A truncation starts a new generation. A pass of an older generation does not count, because what it covered may have
  been cut off and overwritten.
* A pass first notes the end offset that it covers, then the files: records that are appended during the pass are
  fsynced too, but do not count.
* A file that its owner closes during a pass is left out. It was retired, replaced or cut off: its records are no longer
  promised, or the code that closed it has made them durable.
* After any other error nothing of the pass counts and no fsync is tried again: the kernel has dropped the data that it
  could not write, and a second fsync would succeed.
* Two passes of one log do not overlap: the later one would rely on names that the earlier one has yet to fsync.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker_log.disk import Disk, File


class Flush:
    """One pass over one log."""

    __slots__ = ("end_offset", "files", "folders", "generation", "missing", "paths")

    def __init__(
        self,
        generation: int,
        end_offset: int,
        paths: Sequence[str],
        folders: Sequence[str],
        files: Sequence[File],
    ) -> None:
        self.generation = generation
        #: everything before it is durable when the pass is over
        self.end_offset = end_offset
        #: files that the log does not hold open, and folders in which names have changed
        self.paths = paths
        self.folders = folders
        #: files that the log holds open
        self.files = files
        #: the log's folder was gone, deleted by the broker or by another program
        self.missing: OSError | None = None


class FlushState:
    """The flush state of one log."""

    __slots__ = ("_bound", "_reached", "generation", "last_ms")

    def __init__(self, now_ms: int = 0, recovery_point: int = 0) -> None:
        self.generation = 0
        # A pass may end on a thread: generation and offset are set together in one assignment.
        self._reached = (0, recovery_point)
        # The recovery point at the last cut. It is the limit if a pass of an older generation sets `_reached` after the
        # cut.
        self._bound = 0
        #: when the log was last flushed, or last had nothing to flush, in wall-clock milliseconds
        self.last_ms = now_ms

    @property
    def recovery_point(self) -> int:
        generation, offset = self._reached
        return offset if generation == self.generation else min(offset, self._bound)

    def end(self, flush: Flush) -> None:
        """Record that the pass is done."""
        if flush.generation == self.generation:
            self._reached = (flush.generation, max(flush.end_offset, self.recovery_point))

    def cut(self, offset: int) -> None:
        """A truncation begins: no record from `offset` on is durable."""
        self._bound = min(self.recovery_point, offset)
        self.generation += 1
        self._reached = (self.generation, self._bound)


def only_files(flushes: Sequence[Flush]) -> list[File] | None:
    """Return the files to fsync if the passes have only open files to fsync, else None."""
    if any(flush.paths or flush.folders for flush in flushes):
        return None
    return [file for flush in flushes for file in flush.files]


def sync(disk: Disk, log_dir: str, flushes: Sequence[Flush]) -> None:
    """Fsync what the passes of logs in one directory need; blocks. Raises OSError, and then none of the passes
    counts."""
    files = [file for flush in flushes for file in flush.files]
    opened: list[File] = []
    try:
        for path in (path for flush in flushes for path in flush.paths):
            try:
                opened.append(disk.open(path))
            except FileNotFoundError:
                # The file was retired or truncated away in the meantime; the fsync of the folder makes that durable.
                continue
        disk.fsync_files([*opened, *files])
    finally:
        for file in opened:
            file.close()
    missing = disk.fsync_dirs([folder for flush in flushes for folder in flush.folders if folder != log_dir])
    for flush in flushes:
        for folder in flush.folders:
            flush.missing = missing.get(folder) or flush.missing
    if any(log_dir in flush.folders for flush in flushes):
        disk.fsync_dir(log_dir)
