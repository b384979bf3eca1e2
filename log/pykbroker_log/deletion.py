"""Segments that have left a log and are still on disk: some keep their names for now, others wait to be deleted.

Responsible for the order of a deletion: remove the segment from the log, make the log start durable, rename the files
(`.deleted`), wait for `file.delete.delay.ms`, delete the files. Not responsible for which segments go (retention.py),
nor for when files are deleted (the caller; `delete_files` takes long for large files and is for a thread).

Invariants:
* Files are renamed oldest segment first, and only when a crash cannot bring a segment back among those that stay. Power
  loss may undo some changes of a folder and keep others. If an old segment comes back without a later one, the log
  seems to have lost the records in between, unless a durable log start is at or after the later segment's end. If the
  start cannot be made durable because the disk is full, each rename is durable before the next.
* A flush that runs at the same time leaves out the files that are closed during it (flush_state.py).
* A `.deleted` file that a stop or a crash leaves is removed at the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.disk import Disk, parent_of
from pykbroker_log.log_config import StorageError
from pykbroker_log.segment import Segment
from pykbroker_log.side_files import SideFiles


class Retired(NamedTuple):
    segment: Segment
    #: the base offset of the segment after it
    end_offset: int


class Deletion:
    __slots__ = ("_disk", "_doomed", "durable_start_offset", "retired")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        #: segments that are no longer part of the log but keep their own names
        self.retired: tuple[Retired, ...] = ()
        #: the log start offset that is known to survive a crash; None if no checkpoint of it is kept
        self.durable_start_offset: int | None = None
        # (when, path) of the files that wait only for their deletion time.
        self._doomed: tuple[tuple[int, str], ...] = ()

    def is_due(self, now_ms: int) -> bool:
        """Return True if files are to be renamed or deleted now."""
        return any(due_ms <= now_ms for due_ms, _ in self._doomed) or self._may_go()

    def _may_go(self) -> bool:
        durable = self.durable_start_offset
        return bool(self.retired) and (durable is None or self.retired[0].end_offset <= durable)

    def take_names(self, side: SideFiles, due_ms: int, *, one_by_one: bool) -> None:
        """Close and rename the retired segments that may go, with their producer snapshots. Raises OSError.

        With `one_by_one`, rename all of them, and make each rename durable with an fsync before the next. A log without
        a checkpoint of its start (the metadata log) needs the fsyncs too. Otherwise power loss could undo an earlier
        rename and keep a later one.
        """
        while self.retired and (one_by_one or self._may_go()):
            segment = self.retired[0].segment
            segment.gone = True
            segment.close()
            self.doom([*segment.paths(), *side.release_snapshots(upto=segment.base_offset)], due_ms)
            self.retired = self.retired[1:]
            if one_by_one or self.durable_start_offset is None:
                self._disk.fsync_dir(parent_of(segment.path(names.LOG)))

    def doom(self, paths: Iterable[str], due_ms: int) -> None:
        """Rename closed files; they are deleted from `due_ms` on. Raises OSError."""
        for path in paths:
            self._disk.rename(path, path + names.DELETED)
            self._doomed += ((due_ms, path + names.DELETED),)

    def move_to(self, folder: str) -> None:
        """The log's folder was renamed."""
        self._doomed = tuple((due_ms, f"{folder}/{path.rpartition('/')[2]}") for due_ms, path in self._doomed)

    def take_due(self, now_ms: int) -> list[str]:
        """Return the files whose deletion time has come; the caller deletes them (`delete_files`)."""
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        if due:
            self._doomed = tuple(waiting for waiting in self._doomed if waiting[0] > now_ms)
        return due


def delete_files(disk: Disk, paths: Sequence[str]) -> None:
    """Delete the files that `PartitionLog.purge` returned for one log. May run in a thread, because a large file takes
    a tenth of a second. Raises StorageError."""
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            # The folder was deleted or renamed in the meantime.
            pass
        except OSError as error:
            raise StorageError(parent_of(parent_of(path)), error) from error
