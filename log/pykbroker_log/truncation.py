"""One truncation of one log: begin, run, end.

`PartitionLog.begin_truncate` decides what is cut and closes the log for everything else. `Truncation.run` does the work
that waits for the device, on any thread. `PartitionLog.end_truncate` opens the log again. `PartitionLog.truncate_to`
does all three at once, for a caller that may wait. Responsible for the order of the calls to the disk. Not responsible
for when a log is truncated, nor for how a file is cut (log_files.py, segment.py).

Invariants:
* Between begin and end the log accepts no append, no read, no flush, no retention and no compaction: only the thread of
  `run` uses it. Recovery point and log start move in begin, so that they are correct for the log that will be left.
* First the compaction that is under way is abandoned, then the checkpoints are lowered, then the files change, then
  they are fsynced: records that were cut off never come back once `run` has returned.
* A checkpoint that cannot be written leaves the log as it was.
* Once the files have changed, the log agrees with them, or it takes no more appends before the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from pykbroker_log.producer_loading import ProducerLoader

if TYPE_CHECKING:
    from pykbroker_log.epochs import LeaderEpochs
    from pykbroker_log.log_config import LogConfig
    from pykbroker_log.log_files import LogFiles
    from pykbroker_log.producers import ProducerStates
    from pykbroker_log.replacement import Replacement

logger = logging.getLogger(__name__)


class CutLog(Protocol):
    """The part of a log that a truncation uses. The truncation sets `log_end_offset`."""

    log_end_offset: int

    @property
    def files(self) -> LogFiles: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def epochs(self) -> LeaderEpochs: ...

    @property
    def producers(self) -> ProducerStates: ...


class Truncation:
    """A truncation, which `PartitionLog.begin_truncate` or `begin_start_over` has made."""

    __slots__ = ("_cut_at", "_log", "_replacement", "_writes", "end_offset", "has_cut", "starts_before")

    def __init__(
        self,
        log: CutLog,
        end_offset: int,
        cut_at: int | None,
        *,
        starts_before: tuple[int, int],
        replacement: Replacement | None,
        writes: Sequence[Callable[[], None]],
    ) -> None:
        """`cut_at` is the requested offset, which lies in the first batch that is cut, or None if all batches are
        removed. `writes` are the writes that lower the checkpoints before the files change."""
        self._log = log
        self._cut_at = cut_at
        self._replacement = replacement
        self._writes = writes
        #: the log end offset afterwards
        self.end_offset = end_offset
        #: log start and local log start before the truncation
        self.starts_before = starts_before
        #: True once the files may have changed
        self.has_cut = False

    def run(self) -> None:
        """Truncate; blocks. The truncation is durable on return. Raises StorageError. If the files are unchanged then
        (`has_cut` is False), `end_truncate` restores the log starts."""
        log = self._log
        if self._replacement is not None:
            with log.files.guarded():
                self._replacement.abandon()
        for write in self._writes:
            write()
        self.has_cut = True
        try:
            if self._cut_at is None:
                self._start_over()
            else:
                self._cut(self._cut_at)
        except OSError as error:
            # Appends stop even if the disk is only full, because the files may end at another offset than the log.
            raise log.files.flush_failed(error) from error
        with log.files.guarded():
            log.files.side.write_epochs(log.epochs)
            log.files.sync_cut()

    def _cut(self, offset: int) -> None:
        log = self._log
        log.files.cut(offset)
        log.log_end_offset = self.end_offset
        log.epochs.truncate_end(self.end_offset)
        self._reload_producers()

    def _start_over(self) -> None:
        log, offset = self._log, self.end_offset
        log.files.start_over(offset, log.config)
        log.log_end_offset = offset
        log.epochs.clear()
        log.producers.clear(offset)
        log.files.side.drop_snapshots(above=-1)

    def _reload_producers(self) -> None:
        log, end = self._log, self.end_offset
        files = log.files
        files.side.drop_snapshots(above=end)
        if log.producers.map_end_offset == end:
            return
        loader = ProducerLoader(
            files.disk,
            files.path,
            log.producers,
            now_ms=0,
            log_start_offset=log.log_start_offset,
            snapshots=files.side.snapshots,
        )
        loader.load(files.segments, end)
        loader.catch_up(files.segments, end)
        for warning in loader.warnings:
            logger.warning("%s: %s", files.path, warning)
        files.side.snapshots = tuple(loader.snapshots)
        files.side.found_unsynced(loader.rewritten)
