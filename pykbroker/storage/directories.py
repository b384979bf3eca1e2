"""The log directories of this node: choosing one for a replica, and taking a failed one offline.

Responsible for choosing a directory, taking a failed one offline, deleting folders, and describing directories. Not
responsible for logs and partitions (replica/table.py), nor for moving replicas between directories.

Invariants:
* A directory that went offline, or was offline at the start, stays offline until the next start.
* A replica that may be in an offline directory is not created in another one, because its records would seem to be
  gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.metadata.image import DIRECTORY_RESERVED_LAST
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.stopping import close_together
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime
    from pykbroker.storage.space import DiskSpace

logger = logging.getLogger(__name__)

#: The most replicas that are not here but have a chosen directory. The newest choices are kept.
MAX_CHOICES = 10_000


@dataclass(slots=True)
class ReplicaDescription:
    """A replica in a directory. `is_future` marks a copy that will replace the log. `offset_lag` is the number of
    offsets that it lags, -1 if unknown."""

    topic: str
    index: int
    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(slots=True)
class LogDirDescription:
    """The description of one directory for DescribeLogDirs. Bytes are -1 if it is offline."""

    path: str
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: list[ReplicaDescription] = field(default_factory=list)
    is_cordoned: bool = False


class Directories:
    """`on_error` is called with each StorageError of this class's own operations. It has to call `failed`."""

    def __init__(
        self,
        runtime: Runtime,
        log_dirs: list[LogDir],
        metrics: Metrics,
        on_error: Callable[[StorageError], None],
        space: DiskSpace,
    ) -> None:
        self._runtime = runtime
        self._space = space
        self._log_dirs = log_dirs
        self._on_error = on_error
        #: paths of directories that get no new replicas (cordoned.log.dirs)
        self.cordoned: tuple[str, ...] = ()
        #: returns the replicas that are being moved into a directory (moves.py)
        self.copies: Callable[[LogDir], Iterable[ReplicaDescription]] = lambda log_dir: ()
        self._chosen: dict[tuple[str, int], LogDir] = {}
        # Directories whose checkpoints still have entries of deleted folders.
        self._stale: dict[LogDir, None] = {}
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

    def at(self, path: str) -> LogDir | None:
        return next((log_dir for log_dir in self._log_dirs if log_dir.path == path), None)

    # -- choosing -----------------------------------------------------------------------------------------------------

    def holding(self, topic: str, index: int) -> LogDir | None:
        """Return the directory in which the replica has a folder."""
        return next((log_dir for log_dir in self.online() if log_dir.folders.holds(topic, index)), None)

    def lost_end(self, topic: str, index: int) -> int:
        """Return the offset that a replica without any folder had reached by the checkpoints, 0 if they do not name
        it."""
        if self.holding(topic, index) is not None:
            return 0
        return max((log_dir.checkpoints.promised_end((topic, index)) for log_dir in self.online()), default=0)

    def prefer(self, topic: str, index: int, log_dir: LogDir) -> None:
        """Choose the directory for a replica that is not here yet."""
        self._chosen.pop((topic, index), None)
        self._chosen[topic, index] = log_dir
        if len(self._chosen) > MAX_CHOICES:
            del self._chosen[next(iter(self._chosen))]

    def choices(self, topic: str, index: int, assigned: bytes, *, is_new: bool) -> list[LogDir]:
        """Return the directories to try for a replica, in order. That is the directory that has the replica, otherwise
        the one chosen for it, otherwise the one that the metadata assigns. Without such a directory, return all, those
        with the fewest replicas first.

        `is_new`: the replica was created in this run, so a directory that was offline before cannot have records of it.
        Raises KAFKA_STORAGE_ERROR.
        """
        log_dir = self.holding(topic, index)
        if log_dir is not None:
            return [log_dir]
        online = self.online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        chosen = self._chosen.pop((topic, index), None)
        if chosen in online:
            return [chosen]
        for log_dir in online:
            if log_dir.directory_id == assigned:
                return [log_dir]
        is_assigned = assigned > DIRECTORY_RESERVED_LAST
        if len(online) < len(self._log_dirs) and (is_assigned or not is_new):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index}: its log directory is offline")
        free = [log_dir for log_dir in online if log_dir.path not in self.cordoned]
        return sorted(free or online[:1], key=lambda log_dir: len(log_dir.folders.partitions))

    # -- failing ------------------------------------------------------------------------------------------------------

    def failed(self, error: StorageError) -> LogDir | None:
        """Take the directory of the error offline, unless its disk is only full: then its data can be read, and space
        may come back. Returns the directory if it was online until now."""
        log_dir = next((log_dir for log_dir in self._log_dirs if log_dir.path == error.log_dir), None)
        if error.is_full:
            self._space.ran_out(error.log_dir)
            return None
        if log_dir is None or log_dir.offline:
            return None
        logger.error("Log directory %s: taken offline: %s", log_dir.path, error)
        log_dir.take_offline()
        return log_dir

    # -- at the start -------------------------------------------------------------------------------------------------

    async def claim(self) -> None:
        """Remove the marks of the last clean stop. Logs may be opened when this returns. A directory in which this
        fails goes offline. If its disk is only full, each later operation in it first tries to remove the mark
        again."""
        claims = [self._runtime.run_blocking(log_dir.claim) for log_dir in self.online()]
        for end in await asyncio.gather(*claims, return_exceptions=True):
            if isinstance(end, StorageError):
                self._on_error(end)
            elif end is not None:
                raise end

    def settle(
        self, is_known: Callable[[str, int, bytes | None], bool], assigned: Callable[[str, int], bytes]
    ) -> tuple[list[tuple[str, int, LogDir, LogDir]], list[tuple[str, int]]]:
        """Sort out what the last run left: set strays aside, finish moves between directories, delete folders marked
        for it. Returns the moves that go on (partition, source, target), and the partitions whose log is a copy that is
        not recovered yet.

        `is_known`: returns True for replicas that the metadata assigns to this node. `assigned`: returns the directory
        in which the metadata has a replica. A move updates the metadata before it takes effect.
        """
        going_on: list[tuple[str, int, LogDir, LogDir]] = []
        promoted: list[tuple[str, int]] = []
        for log_dir in self.online():
            self._guarded(lambda log_dir=log_dir: log_dir.set_strays_aside(is_known))  # type: ignore[misc]
        for log_dir in self.online():
            for topic, index in list(log_dir.folders.partitions):
                self._guarded(partial(self._settle_twin, topic, index, assigned(topic, index)))
        for log_dir in self.online():
            for topic, index in log_dir.folders.futures:
                held = self.holding(topic, index)
                if not is_known(topic, index, None) or held is log_dir:
                    self.delete_copy(log_dir, log_dir.release_future(topic, index))
                elif held is not None:
                    going_on.append((topic, index, held, log_dir))
                elif log_dir.directory_id == assigned(topic, index) or len(self.online()) == len(self._log_dirs):
                    self._guarded(partial(log_dir.promote_future, topic, index))
                    promoted.append((topic, index))
            for folder in log_dir.folders.leftovers:
                self._delete(log_dir, folder)
        return going_on, promoted

    def _settle_twin(self, topic: str, index: int, assigned: bytes) -> None:
        """A crash between the two renames at the end of a move leaves two folders with all records. Keep one of them.
        The one that the metadata names has the records appended since. If the metadata names neither, keep the longer
        one."""
        twins = [log_dir for log_dir in self.online() if log_dir.folders.holds(topic, index)]
        if len(twins) < 2:
            return
        kept = next((log_dir for log_dir in twins if log_dir.directory_id == assigned), None)
        kept = kept or max(twins, key=lambda log_dir: log_dir.folders.extent(topic, index))
        for log_dir in twins:
            if log_dir is not kept:
                log_dir.set_aside(topic, index, f"was left by a move to {kept.path}")

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except StorageError as error:
            self._on_error(error)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def delete(self, log_dir: LogDir, topic: str, index: int, log: PartitionLog | None, delay_ms: int = 0) -> None:
        """Delete a replica from this directory. Its name is free at once, and its files are deleted after
        `delay_ms`."""
        try:
            folder = log_dir.mark_deleted(topic, index, log)
        except StorageError as error:
            self._on_error(error)
        else:
            self._runtime.loop.call_later(delay_ms / 1000, self._delete, log_dir, folder)
            self.checkpoint(log_dir)

    def delete_copy(self, log_dir: LogDir, name: str) -> None:
        """Delete the folder of a copy that was given up."""
        try:
            folder = log_dir.folders.doom(name)
        except StorageError as error:
            self._on_error(error)
        else:
            if folder is not None:
                self._delete(log_dir, folder)
            self.checkpoint(log_dir)

    def _delete(self, log_dir: LogDir, folder: str) -> None:
        if not log_dir.offline:
            self._runtime.run_blocking(log_dir.folders.delete, folder).add_done_callback(self._done)

    def checkpoint(self, log_dir: LogDir) -> None:
        """Write the checkpoints of a directory soon, on a thread. An entry of a deleted folder would count for the next
        folder of that name."""
        if not self._stale:
            self._runtime.loop.call_soon(self._write_checkpoints)
        self._stale[log_dir] = None

    def _write_checkpoints(self) -> None:
        stale, self._stale = self._stale, {}
        for log_dir in stale:
            if not log_dir.offline:
                for write in log_dir.checkpoints.prepare_all():
                    self._runtime.run_blocking(write).add_done_callback(self._done)

    def _done(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StorageError):
            self._on_error(error)

    # -- describing ---------------------------------------------------------------------------------------------------

    def describe(self, wanted: set[tuple[str, int]] | None) -> list[LogDirDescription]:
        """Describe all directories with their replicas, either those in `wanted` or all."""
        return [self._described(log_dir, wanted) for log_dir in self._log_dirs]

    def _described(self, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> LogDirDescription:
        description = LogDirDescription(log_dir.path, is_cordoned=log_dir.path in self.cordoned)
        try:
            if not log_dir.offline:
                description.total_bytes, description.usable_bytes = log_dir.usage()
                held = log_dir.folders.partitions if wanted is None else log_dir.folders.partitions & wanted
                description.replicas = [_replica(log_dir, topic, index) for topic, index in sorted(held)]
                copies = self.copies(log_dir)
                description.replicas += [one for one in copies if wanted is None or (one.topic, one.index) in wanted]
        except StorageError as error:
            self._on_error(error)
        if log_dir.offline:
            return LogDirDescription(log_dir.path, ErrorCode.KAFKA_STORAGE_ERROR)
        return description


def _replica(log_dir: LogDir, topic: str, index: int) -> ReplicaDescription:
    log = log_dir.logs.get((topic, index))
    if log is None:
        # The log has not been opened since the start.
        return ReplicaDescription(topic, index, log_dir.folders.stored_bytes(topic, index), 0)
    return ReplicaDescription(topic, index, log.size_bytes, max(0, log.high_watermark - log.log_end_offset))


def _offline(log_dir: LogDir) -> int:
    return int(log_dir.offline)


async def close(runtime: Runtime, log_dir: LogDir, *, clean: bool, broker_epoch: int, jobs: int) -> None:
    """Close a directory. With `clean` its logs are made durable first, on `jobs` threads. Raises StorageError."""
    logs = list(log_dir.logs.values()) if clean else []
    parts = [logs[first::jobs] for first in range(min(jobs, len(logs)))]
    ends = await asyncio.gather(
        *(runtime.run_blocking(close_together, runtime.disk, log_dir.path, part) for part in parts),
        return_exceptions=True,
    )
    failures = [end for end in ends if end is not None]
    # A stop is not clean if a log could not be made durable.
    last = partial(log_dir.close, clean=clean and not failures, broker_epoch=broker_epoch)
    await runtime.run_blocking(last)
    for failure in failures:
        raise failure
