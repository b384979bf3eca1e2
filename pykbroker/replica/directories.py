"""The log directories of this node: in which of them a replica lies or will lie, and what becomes of one that fails.

Responsible for: choosing a directory, taking a failed one offline, folders that were deleted, describing directories.
Not responsible for logs and partitions (table.py), nor for moving replicas between directories.

Invariants:
* A directory that went offline, or was offline at the start, stays offline until the next start.
* A replica that may lie in an offline directory is not made anew in another one: its records would seem to be gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.metadata.image import DIRECTORY_RESERVED_LAST
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReplicaDescription:
    topic: str
    index: int
    size_bytes: int
    offset_lag: int


@dataclass(slots=True)
class LogDirDescription:
    """What DescribeLogDirs says of one directory; bytes are -1 when it is offline."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: list[ReplicaDescription] = field(default_factory=list)


class Directories:
    """`on_error` hears of every StorageError that the directories themselves meet; it is to call `failed`."""

    def __init__(
        self, runtime: Runtime, log_dirs: list[LogDir], metrics: Metrics, on_error: Callable[[StorageError], None]
    ) -> None:
        self._runtime = runtime
        self._log_dirs = log_dirs
        self._on_error = on_error
        metrics.gauge(
            "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
            lambda: sum(log_dir.offline for log_dir in self._log_dirs),
        )
        for log_dir in log_dirs:
            name = f"kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory={log_dir.path}"
            metrics.gauge(name, partial(_offline, log_dir))

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._log_dirs)

    def online(self) -> list[LogDir]:
        return [log_dir for log_dir in self._log_dirs if not log_dir.offline]

    # -- choosing -----------------------------------------------------------------------------------------------------

    def holding(self, topic: str, index: int) -> LogDir | None:
        """Where the replica has a folder."""
        return next((log_dir for log_dir in self.online() if log_dir.holds(topic, index)), None)

    def choose(self, topic: str, index: int, assigned: bytes, *, is_new: bool) -> LogDir:
        """Where the replica is, else where the metadata wants it, else the directory with the fewest replicas.

        `is_new`: it was made in this run, so nothing of it can lie in a directory that was offline before.
        Raises KAFKA_STORAGE_ERROR.
        """
        log_dir = self.holding(topic, index)
        if log_dir is not None:
            return log_dir
        online = self.online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        for log_dir in online:
            if log_dir.directory_id == assigned:
                return log_dir
        is_assigned = assigned > DIRECTORY_RESERVED_LAST
        if len(online) < len(self._log_dirs) and (is_assigned or not is_new):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index}: its log directory is offline")
        return min(online, key=lambda log_dir: log_dir.partition_count)

    # -- failing ------------------------------------------------------------------------------------------------------

    def failed(self, error: StorageError) -> LogDir | None:
        """Take the directory of which the error tells offline, unless it is only full: what is there can be read, and
        space may come back. Returns it if it was online until now."""
        log_dir = next((log_dir for log_dir in self._log_dirs if log_dir.path == error.log_dir), None)
        if error.is_full:
            logger.error("Log directory %s: no space is left: %s", error.log_dir, error)
            return None
        if log_dir is None or log_dir.offline:
            return None
        logger.error("Log directory %s: taken offline: %s", log_dir.path, error)
        log_dir.take_offline()
        return log_dir

    # -- deleting -----------------------------------------------------------------------------------------------------

    def set_strays_aside(self, is_known: Callable[[str, int, bytes | None], bool]) -> None:
        """At the start: what nobody knows is renamed, what was deleted before goes."""
        for log_dir in self.online():
            try:
                log_dir.set_strays_aside(is_known)
            except StorageError as error:
                self._on_error(error)
            else:
                for folder in log_dir.leftovers:
                    self._delete(log_dir, folder)

    def delete_later(self, log_dir: LogDir, folder: str, delay_ms: int) -> None:
        """A folder that was marked deleted."""
        self._runtime.loop.call_later(delay_ms / 1000, self._delete, log_dir, folder)

    def _delete(self, log_dir: LogDir, folder: str) -> None:
        if not log_dir.offline:
            self._runtime.run_blocking(log_dir.delete_folder, folder).add_done_callback(self._deleted)

    def _deleted(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StorageError):
            self._on_error(error)

    # -- describing ---------------------------------------------------------------------------------------------------

    def describe(self, wanted: set[tuple[str, int]] | None) -> list[LogDirDescription]:
        """Every directory with its replicas, those in `wanted` or all."""
        return [self._described(log_dir, wanted) for log_dir in self._log_dirs]

    def _described(self, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> LogDirDescription:
        description = LogDirDescription(log_dir.path)
        try:
            if not log_dir.offline:
                description.total_bytes, description.usable_bytes = log_dir.usage()
                held = log_dir.partitions if wanted is None else log_dir.partitions & wanted
                description.replicas = [_replica(log_dir, topic, index) for topic, index in sorted(held)]
        except StorageError as error:
            self._on_error(error)
        if log_dir.offline:
            return LogDirDescription(log_dir.path, ErrorCode.KAFKA_STORAGE_ERROR)
        return description


def _replica(log_dir: LogDir, topic: str, index: int) -> ReplicaDescription:
    log = log_dir.logs.get((topic, index))
    if log is None:
        # Nobody has opened it since the start.
        return ReplicaDescription(topic, index, log_dir.stored_bytes(topic, index), 0)
    return ReplicaDescription(topic, index, log.size_bytes, max(0, log.high_watermark - log.log_end_offset))


def _offline(log_dir: LogDir) -> int:
    return int(log_dir.offline)
