"""What has left a log and is still on disk: segments whose names must stay for now, and files that wait to be deleted.

Responsible for the order in which deletion happens: out of the log, the log's start durable, the name taken away
(`.deleted`), `file.delete.delay.ms`, the file. Not responsible for which segments go (retention.py), nor for when
files are deleted (the caller; `delete_files` takes long for large files and is for a thread).

Invariants:
* Names go oldest first, and only where a crash cannot bring a segment back among those that stay. Power loss may undo
  some changes of a folder and keep others: unless a log start at or behind a segment's end is known to be durable, an
  old segment that comes back without that one looks like a log that has lost records in between. Where the start cannot
  be made durable, because the disk is full, each name is durably gone before the next goes.
* A flush that runs meanwhile leaves out the files that are closed under it (flush_state.py).
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
    #: where the one after it begins
    end_offset: int


class Deletion:
    __slots__ = ("_disk", "_doomed", "durable_start_offset", "retired")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        #: no longer part of the log, still under their own names
        self.retired: tuple[Retired, ...] = ()
        #: what the log start is known to be after a crash; None where no checkpoint of it is kept
        self.durable_start_offset: int | None = None
        # (when, path) of the files that only wait for their time.
        self._doomed: tuple[tuple[int, str], ...] = ()

    def is_due(self, now_ms: int) -> bool:
        """Whether there is something to do: names to take away, or files to delete."""
        return any(due_ms <= now_ms for due_ms, _ in self._doomed) or self._may_go()

    def _may_go(self) -> bool:
        durable = self.durable_start_offset
        return bool(self.retired) and (durable is None or self.retired[0].end_offset <= durable)

    def take_names(self, side: SideFiles, due_ms: int, *, one_by_one: bool) -> None:
        """Close and rename the retired segments that may go, with their producer snapshots. Raises OSError.

        `one_by_one`: all of them, and durably one after the other, which takes an fsync each. Also where no checkpoint
        says where the log starts (the metadata log): or the power could take a name and bring back the one before.
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
        """The log's folder has another name."""
        self._doomed = tuple((due_ms, f"{folder}/{path.rpartition('/')[2]}") for due_ms, path in self._doomed)

    def take_due(self, now_ms: int) -> list[str]:
        """The files whose time has come; the caller deletes them (`delete_files`)."""
        due = [path for due_ms, path in self._doomed if due_ms <= now_ms]
        if due:
            self._doomed = tuple(waiting for waiting in self._doomed if waiting[0] > now_ms)
        return due


def delete_files(disk: Disk, paths: Sequence[str]) -> None:
    """Remove what `PartitionLog.purge` returned, of one log, in a thread if you like: a large file takes a tenth of a
    second. Raises StorageError."""
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            # The folder was deleted or renamed meanwhile.
            pass
        except OSError as error:
            raise StorageError(parent_of(parent_of(path)), error) from error
