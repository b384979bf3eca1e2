"""Truncations of this node's logs: the part that waits for the device runs on a thread.

Responsible for beginning a truncation, ending it on the loop, and knowing the folders in which a thread still works.
Not responsible for the truncation itself (pykbroker_log/truncation.py), nor for its reason.

Invariants:
* While a log is truncated its handle gives it to no other part: no append, no read, no upkeep, no move.
* A folder in which a thread works is not renamed and not deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pykbroker.runtime.later import OnOutcome
from pykbroker_log.log_config import StorageError
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.runtime import Runtime
    from pykbroker.storage.log_handle import LogHandle
    from pykbroker_log.partition_log import PartitionLog
    from pykbroker_log.truncation import Truncation

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TruncationThreads:
    """All truncations of one node."""

    def __init__(self, runtime: Runtime, failed: Callable[[StorageError], None]) -> None:
        """`failed` is called with the error of each disk that fails."""
        self._runtime = runtime
        self._failed = failed
        self._threads: dict[LogHandle, asyncio.Future[None]] = {}
        # Callbacks that wait until no thread works in the folder.
        self._afterwards: dict[LogHandle, Callable[[], None]] = {}

    def begin(self, handle: LogHandle, offset: int, then: OnOutcome) -> None:
        """Cut off everything from `offset` on. `then` is called when the cut is durable, or with the error if it
        failed; at once if there is nothing to cut off. Raises KafkaError."""
        log = handle.open()
        truncation = self._decide(handle, lambda: log.begin_truncate(offset))
        if truncation is None:
            then(ErrorCode.NONE)
        else:
            self._run(handle, log, truncation, then)

    def begin_start_over(self, handle: LogHandle, offset: int, then: OnOutcome) -> None:
        """Remove everything; the log will be empty and start at `offset`. Otherwise like `begin`."""
        log = handle.open()
        self._run(handle, log, self._decide(handle, lambda: log.begin_start_over(offset)), then)

    def _decide(self, handle: LogHandle, decide: Callable[[], T]) -> T:
        try:
            return decide()
        except StorageError as error:
            self._failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{handle}: {error}") from error

    def _run(self, handle: LogHandle, log: PartitionLog, truncation: Truncation, then: OnOutcome) -> None:
        handle.begin_truncation()
        thread = self._runtime.run_blocking(truncation.run)
        self._threads[handle] = thread
        thread.add_done_callback(partial(self._ended, handle, log, truncation, then))

    def _ended(
        self,
        handle: LogHandle,
        log: PartitionLog,
        truncation: Truncation,
        then: OnOutcome,
        done: asyncio.Future[None],
    ) -> None:
        del self._threads[handle]
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        log.end_truncate(truncation)
        afterwards = self._afterwards.pop(handle, None)
        if afterwards is not None:
            afterwards()
        if handle.truncating:
            if isinstance(error, StorageError):
                self._failed(error)
            elif error is not None and not done.cancelled():
                # This is a bug. Files and memory may differ.
                logger.error(
                    "Partition %s: its log could not be truncated, so the partition stays offline",
                    handle,
                    exc_info=error,
                )
                handle.take_offline()
        handle.end_truncation(log)
        then(_code(handle, error))

    def __contains__(self, handle: LogHandle) -> bool:
        """Return True if a thread works in the folder of the log."""
        return handle in self._threads

    def occupies(self, topic: str, index: int) -> bool:
        """Return True if a thread works in the folder of a replica that is gone (`when_ended`)."""
        return any((handle.topic, handle.index) == (topic, index) for handle in self._afterwards)

    def when_ended(self, handle: LogHandle, callback: Callable[[], None]) -> None:
        """Call back when no thread works in the folder of the log, at once if none does."""
        if handle in self:
            assert handle not in self._afterwards, handle
            self._afterwards[handle] = callback
        else:
            callback()

    async def ended(self) -> None:
        """Return, when the node stops, after the last thread that works on a log."""
        if self._threads:
            await asyncio.gather(*self._threads.values(), return_exceptions=True)


def _code(handle: LogHandle, error: BaseException | None) -> ErrorCode:
    if error is not None or handle.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE if handle.log is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
