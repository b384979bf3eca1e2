"""The end of a clean run for many logs, in rounds with shared fsyncs.

Responsible for which logs form a round. Not responsible for what has to be written for a log
(`PartitionLog.begin_stop`), nor for the threads.

Logs that are made durable one after the other cost several commits of the file system's journal each; the logs of a
round share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from pykbroker_log.disk import Disk
from pykbroker_log.flush_state import sync
from pykbroker_log.log_config import StorageError

if TYPE_CHECKING:
    from pykbroker_log.flush_state import Flush
    from pykbroker_log.log_files import LogFiles

L = TypeVar("L", bound="OpenLog")

#: Logs of one round: each has a file or two open during it, and an error fails the whole round.
_AT_ONCE = 100


class OpenLog(Protocol):
    """The part of a log that is used here."""

    files: LogFiles

    def begin_stop(self) -> Flush: ...

    def close(self, *, clean: bool) -> None: ...


def close_together(disk: Disk, log_dir: str, logs: Sequence[OpenLog]) -> None:
    """Do `settle_together`, and close these logs. Blocks. Raises StorageError."""
    for log in settle_together(disk, log_dir, logs):
        log.close(clean=False)


def settle_together(disk: Disk, log_dir: str, logs: Sequence[L]) -> list[L]:
    """Make logs of one directory durable, so that a start on these files scans nothing, and return them. Logs that have
    failed before are left out and stay as they are. Blocks. Raises StorageError."""
    left = [log for log in logs if log.files.is_sound]
    for first in range(0, len(left), _AT_ONCE):
        some = left[first : first + _AT_ONCE]
        flushes = [log.begin_stop() for log in some]
        try:
            sync(disk, log_dir, flushes)
        except OSError as error:
            for log in some:
                log.files.flush_failed(error)
            raise StorageError(log_dir, error, is_final=True) from error
        for log, flush in zip(some, flushes, strict=True):
            log.files.end_flush(flush)
    return left
