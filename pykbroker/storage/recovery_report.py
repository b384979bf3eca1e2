"""The progress of the recovery of logs, in the log, in Apache Kafka's metrics, and as numbers for the node.

Responsible for what is shown, and when. Not responsible for the recovery (recovery.py): this part only reads the queues
of the directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime
    from pykbroker_log.log_dirs import LogDir

logger = logging.getLogger(__name__)

#: Progress is logged at least every two seconds; this leaves a margin.
_LOG_SECONDS = 1.5


class RecoveringDirectory(Protocol):
    """The queue of one log directory, as far as it is shown."""

    @property
    def log_dir(self) -> LogDir: ...

    @property
    def logs_left(self) -> int: ...

    @property
    def bytes_left(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def recovered(self) -> int: ...

    @property
    def empty(self) -> int:
        """The number of recovered logs that are empty."""

    def segments_left(self, slot: int) -> int:
        """Return the number of segments that the job of a slot has to check."""


class RecoveryReport:
    def __init__(self, runtime: Runtime, metrics: Metrics, directories: Collection[RecoveringDirectory]) -> None:
        """`directories` are those with logs to recover, now and later."""
        self._runtime = runtime
        self._metrics = metrics
        self._directories = directories
        self._gauges: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._began_at = 0.0

    def begin(self) -> None:
        """Begin to count the time."""
        self._began_at = self._runtime.loop.time()

    def so_far(self) -> tuple[int, int, int] | None:
        """Return (bytes checked, bytes to check, logs left), None if there is nothing to recover."""
        if not self._directories:
            return None
        total = sum(directory.bytes for directory in self._directories)
        left = sum(directory.bytes_left for directory in self._directories)
        return total - left, total, sum(directory.logs_left for directory in self._directories)

    # -- the log

    def log_begin(self, directory: RecoveringDirectory) -> None:
        logger.info(
            "Recovering the logs in %s, which was not shut down cleanly: %d logs, %s to check",
            directory.log_dir.path,
            directory.logs_left,
            _size(directory.bytes_left),
        )

    def log_regularly(self) -> None:
        """Log the progress from now on, as long as there is something to recover."""
        if self._timer is None and self._directories:
            self._timer = self._runtime.loop.call_later(_LOG_SECONDS, self._log)

    def _log(self) -> None:
        for directory in self._directories:
            logger.info(
                "Recovering the logs in %s: %d logs left, %s of %s left to check",
                directory.log_dir.path,
                directory.logs_left,
                _size(directory.bytes_left),
                _size(directory.bytes),
            )
        self._timer = self._runtime.loop.call_later(_LOG_SECONDS, self._log)

    # -- the metrics

    def show(self, directory: RecoveringDirectory, slots: int) -> None:
        prefix = "kafka.log:type=LogManager,name="
        tags = f",dir={directory.log_dir.path}"
        self._gauge(f"{prefix}remainingLogsToRecover{tags}", lambda: directory.logs_left)
        for slot in range(slots):
            self._gauge(
                f"{prefix}remainingSegmentsToRecover{tags},threadNum={slot}", partial(directory.segments_left, slot)
            )

    def _gauge(self, name: str, read: Callable[[], float]) -> None:
        self._metrics.gauge(name, read)
        self._gauges.append(name)

    # -- the end

    def end(self, directory: RecoveringDirectory) -> None:
        """Log that a directory is recovered. The metrics go with the last directory, as in Apache Kafka."""
        if not directory.log_dir.offline:
            logger.info(
                "Recovered the logs in %s: %d logs, of which %d are empty, %s checked in %.1f s",
                directory.log_dir.path,
                directory.recovered,
                directory.empty,
                _size(directory.bytes),
                self._runtime.loop.time() - self._began_at,
            )
        if not self._directories:
            self.stop()
            for name in self._gauges:
                self._metrics.remove(name)
            self._gauges.clear()

    def stop(self) -> None:
        """Log no more progress."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
