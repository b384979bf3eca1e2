"""Replicas that move from one log directory to another while they serve (KIP-113, KIP-858).

A move copies the log, stretch by stretch, into a `-future` folder in worker processes until little is left. Then it
reports the new directory to the controller. Finally, in one turn of the loop, it copies the rest and the copy replaces
the log. Responsible for when each step happens, for the throttle, and for giving a move up. Not responsible for the
copying itself (pykbroker_log/copying.py), nor for choosing a directory (directories.py).

Invariants:
* A move never makes the log wait, and does not touch it before the last turn. Until then, deleting the copy's folder
  undoes everything.
* A folder is not deleted while a worker may still write into it.
* Records that were durable in the log are durable in the copy that replaces it.
* After a truncation of the log the copy begins anew, because the copied records may be from before or after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from pykbroker.runtime.workers import WorkerDied
from pykbroker.storage.copy_pace import CopyPace
from pykbroker.storage.directories import Directories, ReplicaDescription
from pykbroker.storage.future_copy import FutureCopy
from pykbroker_log import names
from pykbroker_log.copying import Copied, Target, bytes_from, copy_stretch, is_copy, stretch
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime
    from pykbroker.storage.log_handle import LogHandle

logger = logging.getLogger(__name__)

#: The most bytes that one job copies. A move that was given up is over after at most such a job.
STRETCH_BYTES = 32 << 20
#: The bytes that may be left for the last turn of the loop: at first, and at most, if a busy producer stays ahead of
#: the worker.
LAST_BYTES, MOST_LAST_BYTES = 256 << 10, 8 << 20
#: The pause between two looks at a log that is still being recovered or truncated.
RECOVERY_PAUSE_SECONDS = 1.0
#: A worker that died is replaced at most this many times before a move is given up.
TRIES = 3


class Move:
    """The move of one replica."""

    __slots__ = (
        "assigned",
        "busy",
        "copy",
        "doomed",
        "gaps_are_noted",
        "generation",
        "handle",
        "is_over",
        "last_bytes",
        "log",
        "source",
        "target",
        "tries",
    )

    def __init__(self, handle: LogHandle, source: LogDir, target: LogDir, copy: FutureCopy) -> None:
        self.handle = handle
        self.source = source
        self.target = target
        self.copy = copy
        self.log: PartitionLog | None = None
        self.generation = -1
        #: True when the copy's directory has a durable note that the log has gaps
        self.gaps_are_noted = False
        self.last_bytes = LAST_BYTES
        #: None before the controller was asked, then True if it has confirmed the new directory, else False
        self.assigned: bool | None = None
        #: True while a worker writes the copy
        self.busy = False
        self.is_over = False
        #: the name of the folder that is deleted when no worker writes to it
        self.doomed: str | None = None
        self.tries = 0

    def __repr__(self) -> str:
        return f"{self.handle}: the move from {self.source.path} to {self.target.path}"

    @property
    def offset_lag(self) -> int:
        """The number of offsets that the copy lags, -1 while that is unknown."""
        log = self.handle.log
        return -1 if log is None else self.copy.offset_lag(log.log_start_offset, log.log_end_offset)


class DirectoryAssignments(Protocol):
    """Reports the directory of a replica to the controller."""

    def opened(self, handle: LogHandle, log_dir: LogDir) -> None:
        """Report where the replica is: after it was opened, or when a move was given up."""

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        """Report where the replica will be, and call `told` when the controller has confirmed it."""


class NoAssignments:
    """Sends no reports, for a table of replicas that runs without a controller."""

    def opened(self, handle: LogHandle, log_dir: LogDir) -> None:
        pass

    def assign(self, handle: LogHandle, log_dir: LogDir, told: Callable[[], None]) -> None:
        told()


class ReplicaView(Protocol):
    """The metadata about replicas."""

    def exists(self, topic: str, index: int) -> bool:
        """Return True if there is such a partition, on this node or elsewhere."""

    def topic_config(self, topic: str) -> LogConfig:
        """Return the configuration in effect."""


class Moves:
    """All moves of this node's replicas."""

    def __init__(
        self,
        runtime: Runtime,
        metrics: Metrics,
        directories: Directories,
        find: Callable[[str, int], LogHandle | None],
        view: ReplicaView,
        assignments: DirectoryAssignments,
        *,
        threads: Callable[[], int | None],
        throttle: Callable[[], int],
        failed: Callable[[StorageError], None],
    ) -> None:
        """`find` returns the log of a replica of this node. `threads` returns how many stretches may be copied at once,
        None for one per directory. `throttle` returns how many bytes a second all moves together may copy. `failed` is
        called with the error of each disk that fails."""
        self._runtime = runtime
        self._directories = directories
        self._find = find
        self._view = view
        self._assignments = assignments
        self._threads = threads
        self._throttle = throttle
        self._disk_failed = failed
        self._moves: dict[LogHandle, Move] = {}
        self._waiting: deque[Move] = deque()
        self._busy: set[asyncio.Future[Copied]] = set()
        self._failed = 0
        self._pace = CopyPace(lambda: runtime.loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._closed = True
        name = "kafka.server:type=ReplicaAlterLogDirsManager,name="
        metrics.gauge(
            f"{name}MaxLag,clientId=ReplicaAlterLogDirs",
            lambda: max((move.offset_lag for move in self._moves.values()), default=0),
        )
        metrics.gauge(f"{name}FailedPartitionsCount,clientId=ReplicaAlterLogDirs", lambda: self._failed)

    def start(self) -> None:
        """Begin to copy. Call it when the logs are open."""
        self._closed = False
        self._schedule()

    # -- what is asked ------------------------------------------------------------------------------------------------

    def alter(self, topic: str, index: int, path: str) -> ErrorCode:
        """Handle AlterReplicaLogDirs for one replica. The checks are in Apache Kafka's order."""
        if len(f"{topic}-{index}.{ZERO_UUID.hex()}{names.FUTURE_DIR}") > names.MAX_NAME:
            # The name would be cut, and then no node could find which partition's copy it is.
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        directories = self._directories
        target = directories.at(path)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if target.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if path in directories.cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        handle = self._find(topic, index)
        if handle is None:
            directories.prefer(topic, index, target)
            if self._view.exists(topic, index):
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            handle.open()
        except KafkaError as error:
            # The replica is being recovered, so it is not available yet.
            return ErrorCode.REPLICA_NOT_AVAILABLE if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER else error.code
        move = self._moves.get(handle)
        if move is not None and move.target is not target:
            logger.info("Partition %s is given up, because another directory was chosen", move)
            self._drop(move)
            move = None
        source = directories.holding(topic, index)
        if source is None or source is target or move is not None:
            return ErrorCode.NONE
        if len(directories.online()) < len(list(directories)):
            # As in Apache Kafka, because the directory that this node cannot read may have a copy.
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.begin(handle, source, target)
        return ErrorCode.NONE

    def __contains__(self, handle: LogHandle) -> bool:
        return handle in self._moves

    def begin(self, handle: LogHandle, source: LogDir, target: LogDir) -> None:
        """Move a replica, or go on with its move: a copy in `target` from an earlier run is used if it is valid."""
        found = (handle.topic, handle.index) in target.folders.futures
        folder = target.folders.future_path(handle.topic, handle.index, self._runtime.random.randbytes(16))
        move = Move(handle, source, target, FutureCopy(folder, must_look=found))
        self._moves[handle] = move
        if (log := handle.log) is not None:
            # The copied segments must stay, so the log is not compacted during the move.
            try:
                log.end_replacement()
            except StorageError as error:
                self._disk_failed(error)
        logger.info("Partition %s begins", move)
        if found:
            self._wait(move)
        else:
            # An earlier log of the replica may have been in `target`. Its recovery point means nothing for the copy.
            self._go_on_after(move, target.checkpoints.prepare_recovery_points())

    def _go_on_after(self, move: Move, write: Callable[[], None]) -> None:
        self._runtime.run_blocking(write).add_done_callback(lambda done: self._prepared(move, done))

    def _prepared(self, move: Move, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if move.is_over:
            return
        if error is None:
            self._wait(move)
        else:
            self._refused(move, error)

    def copies(self, log_dir: LogDir) -> Iterator[ReplicaDescription]:
        """Yield the copies that are being made in a directory."""
        for move in self._moves.values():
            if move.target is log_dir:
                handle = move.handle
                yield ReplicaDescription(handle.topic, handle.index, move.copy.size_bytes, move.offset_lag, True)

    # -- what happens -------------------------------------------------------------------------------------------------

    def removed(self, handle: LogHandle) -> None:
        """End the move of a partition that is no longer this node's."""
        move = self._moves.get(handle)
        if move is not None:
            self._drop(move)

    def directory_failed(self, log_dir: LogDir) -> None:
        """End the moves from and to this directory. A copy elsewhere stays, and the next start looks at it again."""
        for move in [move for move in self._moves.values() if log_dir in (move.source, move.target)]:
            logger.error("Partition %s has ended, because %s is offline", move, log_dir.path)
            self._end(move)
            if move.target is log_dir and move.assigned is not None:
                self._assignments.opened(move.handle, move.source)

    async def close(self) -> None:
        """Stop copying. Returns when no worker writes to a copy. The next start goes on with the copies."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._busy:
            await asyncio.wait(self._busy)

    def _end(self, move: Move) -> None:
        move.is_over = True
        self._moves.pop(move.handle, None)
        if move in self._waiting:
            self._waiting.remove(move)

    def _drop(self, move: Move) -> None:
        """End a move and delete the copy as soon as no worker writes to it."""
        self._end(move)
        move.doomed = move.target.release_future(move.handle.topic, move.handle.index)
        if move.assigned is not None:
            self._assignments.opened(move.handle, move.source)
        if not move.busy:
            self._delete(move)

    def _delete(self, move: Move) -> None:
        if move.doomed is not None and not move.target.offline:
            self._directories.delete_copy(move.target, move.doomed)

    def _give_up(self, move: Move, why: object) -> None:
        self._failed += 1
        logger.error("Partition %s is given up: %s", move, why)
        self._drop(move)

    def reconfigure(self) -> None:
        """Apply a changed throttle, also to the bytes that are copied already."""
        if self._pace.change(max(1, self._throttle())) and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._schedule()

    # -- one after the other ------------------------------------------------------------------------------------------

    def _wait(self, move: Move) -> None:
        """Queue the move for its next step."""
        self._waiting.append(move)
        self._schedule()

    def _wait_on(self, move: Move) -> None:
        if not move.is_over:
            self._wait(move)

    def _schedule(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._runtime.loop.call_later(self._pace.wait_seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        most = self._threads()
        while self._waiting and len(self._busy) < (most or len(list(self._directories))):
            if self._pace.wait_seconds > 0:
                self._schedule()
                return
            self._step(self._waiting.popleft())

    def _step(self, move: Move) -> None:
        try:
            self._advance(move)
        except (KafkaError, StorageError) as error:
            self._refused(move, error)

    def _advance(self, move: Move) -> None:
        """Take the next step of a move. Raises KafkaError, StorageError."""
        if move.handle.comes_back:
            self._runtime.loop.call_later(RECOVERY_PAUSE_SECONDS, self._wait_on, move)
            return
        log = move.handle.open()
        if move.log is not log or move.generation != log.files.generation:
            move.log, move.generation = log, log.files.generation
            move.copy.begin_anew()
        cleaned = move.source.checkpoints.cleaner_offset(log)
        if cleaned is not None and not move.gaps_are_noted:
            # A start after a crash must not take the copy's gaps for a loss.
            move.gaps_are_noted = True
            move.target.checkpoints.set_cleaner_offset(log, cleaned)
            self._go_on_after(move, move.target.checkpoints.prepare_cleaner_offsets())
            return
        copy = move.copy
        if copy.must_look:
            copy.must_look = False
            self._copy(move, None, 0)
            return
        if copy.end_offset is not None and copy.end_offset < log.log_start_offset:
            # Retention has deleted records that were not copied yet.
            copy.begin_anew()
        # With a throttle, copy the bytes of one second.
        most_bytes = min(STRETCH_BYTES, self._pace.bytes_per_second)
        if copy.end_offset is None:
            self._copy(move, log.log_start_offset, most_bytes)
            return
        left = bytes_from(log, copy.end_offset)
        if left > move.last_bytes:
            if left < MOST_LAST_BYTES:
                move.last_bytes = min(2 * move.last_bytes, MOST_LAST_BYTES)
            self._copy(move, copy.end_offset, most_bytes)
        elif move.assigned:
            self._finish(move, log)
        elif move.assigned is None:
            move.assigned = False
            self._assignments.assign(move.handle, move.target, lambda: self._told(move))

    def _told(self, move: Move) -> None:
        move.assigned = True
        self._wait_on(move)

    # -- copying ------------------------------------------------------------------------------------------------------

    def _target_of(self, move: Move) -> Target:
        handle = move.handle
        assert move.log is not None
        return Target(
            move.copy.folder,
            handle.topic,
            handle.index,
            handle.topic_id,
            self._view.topic_config(handle.topic),
            move.copy.is_clean,
            move.target.checkpoints.durable_end(handle.topic, handle.index),
            move.log.files.segments.is_gapless,
        )

    def _copy(self, move: Move, offset: int | None, max_bytes: int) -> None:
        """Copy a stretch from `offset` on in a worker process, or only look at the copy if it is None. Raises
        StorageError."""
        assert move.log is not None
        start, pieces = (0, []) if offset is None else stretch(move.log, offset, max_bytes)
        begins_anew = offset is not None and move.copy.has_other_records(start)
        future = self._runtime.run_apart(
            copy_stretch,
            self._target_of(move),
            start if begins_anew else None,
            pieces,
            self._runtime.now_ms(),
            on_progress=self._pace.spend,
        )
        move.busy = True
        move.copy.is_being_written()
        self._busy.add(future)
        future.add_done_callback(lambda done: self._copied(move, offset is None, done))

    def _copied(self, move: Move, looked: bool, done: asyncio.Future[Copied]) -> None:
        move.busy = False
        self._busy.discard(done)
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if move.is_over:
            self._delete(move)
        elif error is None:
            self._note(move, done.result(), looked)
        else:
            self._stumbled(move, error)
        self._schedule()

    def _note(self, move: Move, copied: Copied, looked: bool) -> None:
        assert move.log is not None
        # After a crash the move goes on from here.
        move.target.checkpoints.note_durable_end(move.handle.topic, move.handle.index, copied.end_offset)
        self._directories.checkpoint(move.target)
        move.copy.was_written(copied.end_offset, copied.size_bytes)
        if not looked:
            move.tries = 0
        elif move.generation != move.log.files.generation or not is_copy(move.log, copied):
            move.copy.begin_anew()
        self._wait(move)

    def _stumbled(self, move: Move, error: BaseException) -> None:
        assert move.log is not None
        # It is unknown how far the worker got.
        move.copy.must_look = True
        move.tries += 1
        if isinstance(error, OSError):
            # An error of a worker names its directory, except after a SIGBUS. A worker maps only the copy.
            error = StorageError(move.target.path, error)
        if move.generation != move.log.files.generation:
            # The worker has read records that were being cut off.
            self._wait(move)
        elif isinstance(error, WorkerDied) or (
            # Retention or compaction has deleted the file.
            isinstance(error, StorageError) and isinstance(error.cause, FileNotFoundError)
        ):
            if move.tries <= TRIES:
                self._wait(move)
            else:
                self._refused(move, error)
        else:
            self._refused(move, error)

    def _refused(self, move: Move, error: BaseException) -> None:
        """Give the move up, because the copy does not fit, the log is damaged, or a directory has failed."""
        if isinstance(error, StorageError):
            self._disk_failed(error)
        elif not isinstance(error, (KafkaError, WorkerDied)):
            logger.error("Partition %s has failed", move, exc_info=error)
        if not move.is_over:
            self._give_up(move, error)

    # -- the last step ------------------------------------------------------------------------------------------------

    def _finish(self, move: Move, log: PartitionLog) -> None:
        """Copy the rest and let the copy replace the log. Raises KafkaError, StorageError."""
        copy = self._target_of(move).open(self._runtime.disk, self._runtime.now_ms())
        try:
            while copy.log_end_offset < log.log_end_offset:
                result = log.read(copy.log_end_offset, LAST_BYTES, log.log_end_offset)
                if not result.slices:
                    break
                for data in result.slices:
                    assert isinstance(data, bytes)
                    copy.append_as_follower(data, now_ms=self._runtime.now_ms())
            if copy.log_end_offset != log.log_end_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"{log.path} has no batch from offset {copy.log_end_offset} to its end"
                )
            if log.recovery_point > copy.recovery_point or move.handle.user.promises_flush:
                # Records that were promised to be durable stay durable. The flush runs on the loop, because nothing may
                # be appended in between. It is short, and a log that is not flushed all the time seldom needs it.
                copy.flush()
            move.target.adopt_future(copy, log)
            cleaned = move.source.checkpoints.cleaner_offset(log)
            if cleaned is not None:
                move.target.checkpoints.set_cleaner_offset(copy, cleaned)
        except BaseException:
            copy.close(clean=False)
            raise
        self._end(move)
        handle = move.handle
        handle.moved(copy)
        logger.info("Partition %s: moved from %s to %s", handle, move.source.path, move.target.path)
        self._directories.delete(move.source, handle.topic, handle.index, log)
        self._directories.checkpoint(move.target)
