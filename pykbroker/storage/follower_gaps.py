"""Entries in cleaner-offset-checkpoint for logs that get gaps from their leader.

A leader's compacted log has gaps, and so has the log of its followers. A start after a crash takes a gap for a loss
unless that file has an entry for the log (pykbroker_log/log_dirs.py), even if the topic is no longer compacted by then.
Responsible for making the entry durable before the append, on a thread, many logs at once. Not responsible for when an
entry is needed (the caller), nor for the entries of the cleaner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.runtime.later import OnOutcome
from pykbroker_log.log_config import StorageError
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime
    from pykbroker.storage.directories import Directories
    from pykbroker.storage.log_handle import LogHandle
    from pykbroker_log.log_dirs import LogDir
    from pykbroker_log.partition_log import PartitionLog


class FollowerGaps:
    """Writes the entries for the followers of one node."""

    def __init__(self, runtime: Runtime, directories: Directories, failed: Callable[[StorageError], None]) -> None:
        """`failed` is called with the error of each disk that fails."""
        self._runtime = runtime
        self._directories = directories
        self._failed = failed
        # The callbacks of the next write, by directory. A directory that is a key here is being written.
        self._waiting: dict[LogDir, list[OnOutcome]] = {}

    def note(self, handle: LogHandle, log: PartitionLog, then: OnOutcome) -> None:
        """Call back once the entry of the log is durable, or with the error if it is not."""
        log_dir = self._directories.holding(handle.topic, handle.index)
        if log_dir is None:
            then(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if log_dir.checkpoints.cleaner_offset(log) is None:
            # Nothing of this log was cleaned here.
            log_dir.checkpoints.set_cleaner_offset(log, log.log_start_offset)
        waiting = self._waiting.get(log_dir)
        if waiting is not None:
            waiting.append(then)
        else:
            self._write(log_dir, [then])

    def _write(self, log_dir: LogDir, told: list[OnOutcome]) -> None:
        self._waiting[log_dir] = []
        written = self._runtime.run_blocking(log_dir.checkpoints.prepare_cleaner_offsets())
        written.add_done_callback(partial(self._written, log_dir, told))

    def _written(self, log_dir: LogDir, told: list[OnOutcome], done: asyncio.Future[None]) -> None:
        waiting = self._waiting.pop(log_dir)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if isinstance(error, StorageError):
            self._failed(error)
        if waiting:
            self._write(log_dir, waiting)
        for then in told:
            then(ErrorCode.NONE if error is None else ErrorCode.KAFKA_STORAGE_ERROR)
