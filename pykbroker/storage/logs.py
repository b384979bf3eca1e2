"""The logs of this node's replicas, and the parts that look after them.

Responsible for one handle for each replica, opening a log in the directory that holds it or in a new one, and the
effect of a failed directory on its logs. Not responsible for which replicas this node has and how they are used (the
caller), choosing a directory (directories.py), the order in which logs are opened (opening.py), nor periodic upkeep
(upkeep.py).

The parts get only the functions of this class that they need. upkeep.py and cleaner.py get the whole object, and this
class does not use them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pykbroker.runtime.cold_reads import ColdReads
from pykbroker.storage.directories import Directories
from pykbroker.storage.flush_rounds import FlushRounds
from pykbroker.storage.follower_gaps import FollowerGaps
from pykbroker.storage.log_handle import LogHandle
from pykbroker.storage.missing import MissingRecords
from pykbroker.storage.moves import DirectoryAssignments, Moves, NoAssignments
from pykbroker.storage.opening import Opener
from pykbroker.storage.recovery import LogRecovery
from pykbroker.storage.space import DiskSpace
from pykbroker.storage.truncation_threads import TruncationThreads
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.partition_log import InconsistentTopicId, PartitionLog
from pykbroker_log.recovery_job import Unrecovered
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)


class ReplicaMetadata(Protocol):
    """The metadata about replicas."""

    def exists(self, topic: str, index: int) -> bool:
        """Return True if there is such a partition, on this node or elsewhere."""

    def assigned(self, topic: str, index: int) -> bytes:
        """Return the directory in which the metadata has this node's replica."""

    def topic_config(self, topic: str) -> LogConfig:
        """Return the configuration in effect."""


class Logs:
    """The logs of one node. It iterates over their handles."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        log_dirs: list[LogDir],
        metrics: Metrics,
        view: ReplicaMetadata,
        on_directory_failure: Callable[[LogDir, StorageError], None],
        cold_reads: ColdReads | None,
        assignments: DirectoryAssignments | None,
        move_throttle: Callable[[], int],
        space: DiskSpace,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._view = view
        self._on_directory_failure = on_directory_failure
        self._assignments = assignments if assignments is not None else NoAssignments()
        self._handles: dict[tuple[str, int], LogHandle] = {}
        self._started = False
        self._missing = MissingRecords(runtime)
        #: requests wait here for data that is not in memory
        self.cold_reads = cold_reads if cold_reads is not None else ColdReads(runtime)
        self.flusher = FlushRounds(runtime, metrics, self.directory_failed)
        self.directories = Directories(runtime, log_dirs, metrics, self.directory_failed, space)
        self.directories.cordoned = config.cordoned_log_dirs
        self.moves = Moves(
            runtime,
            metrics,
            self.directories,
            self.find,
            view,
            self._assignments,
            threads=lambda: self._config.optional_int("num.replica.alter.log.dirs.threads"),
            throttle=move_throttle,
            failed=self.directory_failed,
        )
        self.directories.copies = self.moves.copies
        #: opens the logs that are not open yet
        self.opener = Opener(runtime, self._folder)
        self.recovery = LogRecovery(
            runtime,
            metrics,
            self.directories,
            self._unrecovered,
            jobs=lambda: self._config.int("num.recovery.threads.per.data.dir"),
            ready=self.opener.add,
            failed=self.directory_failed,
        )
        self.truncations = TruncationThreads(runtime, self.directory_failed)
        self.follower_gaps = FollowerGaps(runtime, self.directories, self.directory_failed)
        metrics.family(lambda: _log_gauges(self))

    def __iter__(self) -> Iterator[LogHandle]:
        return iter(self._handles.values())

    def find(self, topic: str, index: int) -> LogHandle | None:
        return self._handles.get((topic, index))

    def reconfigure(self, config: Config) -> None:
        """Apply a changed configuration of the broker at once to the logs that are open."""
        self._config = config
        expiration_ms = config.int("producer.id.expiration.ms")
        verify = config.bool("transaction.partition.verification.enable")
        for handle in self:
            log = handle.log
            if log is not None:
                log.producers.expiration_ms = expiration_ms
                log.producers.verify = verify
        self.recovery.fill()
        self.directories.cordoned = config.cordoned_log_dirs
        self.moves.reconfigure()

    # -- replicas come and go -----------------------------------------------------------------------------------------

    def add(self, topic: str, index: int, topic_id: bytes) -> LogHandle:
        """Add the log of a replica that this node has from now on. The user attaches itself in this turn of the
        loop."""
        handle = LogHandle(topic, index, topic_id, self, is_new=self._started)
        self._handles[topic, index] = handle
        log_dir = self.directories.holding(topic, index)
        if self.truncations.occupies(topic, index):
            # The folder of that name still belongs to its predecessor.
            handle.await_recovery()
        elif log_dir is not None and log_dir.is_unrecovered(topic, index):
            self.recovery.add(handle)
        elif self._started:
            self.opener.add_new(handle)
        else:
            self.opener.add(handle)
        return handle

    def remove(self, handle: LogHandle, delay_ms: int) -> None:
        """Remove a replica that is gone. Its folder becomes `-delete` and is deleted after `delay_ms`."""
        del self._handles[handle.topic, handle.index]
        self.moves.removed(handle)
        log = handle.release()
        self.recovery.forget(lambda other: other is handle)
        topic, index = handle.topic, handle.index
        if not self.truncations.occupies(topic, index):
            self.truncations.when_ended(handle, partial(self._delete, topic, index, log, delay_ms))
        # If a thread still works in the folder of the predecessor, this replica has waited for that folder and has
        # none.

    def _delete(self, topic: str, index: int, log: PartitionLog | None, delay_ms: int) -> None:
        """Delete the folder of a replica that is gone."""
        log_dir = self.directories.holding(topic, index)
        if log_dir is not None:
            self.directories.delete(log_dir, topic, index, log, delay_ms)
        # A truncation may have held up the deletion until there was a new replica of that name.
        successor = self.find(topic, index)
        if successor is not None and successor.recovering:
            successor.recovered()
            self.opener.add_new(successor)

    def start(self) -> None:
        """Set aside folders that the metadata does not know, and begin to recover logs without a clean stop. Call it
        when the metadata is complete. A bad folder raises nothing."""
        self._started = True
        moves, promoted = self.directories.settle(self._is_mine, self._view.assigned)
        for topic, index, source, target in moves:
            self.moves.begin(self._handles[topic, index], source, target)
        for topic, index in promoted:
            self.recovery.add(self._handles[topic, index])
        for handle in self:
            lost_end = self.directories.lost_end(handle.topic, handle.index)
            if lost_end:
                self._missing.tell_folder(str(handle), lost_end)
        self.recovery.begin()

    def stop(self) -> None:
        """Stop when the node stops. From now on a log is only opened if a request needs it at once."""
        self.opener.stop()
        self.recovery.stop()

    async def ended(self) -> None:
        """Return, after `stop`, when no thread works on a log."""
        await self.recovery.ended()
        await self.truncations.ended()

    def _is_mine(self, topic: str, index: int, topic_id: bytes | None) -> bool:
        handle = self.find(topic, index)
        return handle is not None and (topic_id is None or topic_id == handle.topic_id)

    # -- opening ------------------------------------------------------------------------------------------------------

    def _folder(self, handle: LogHandle) -> str | None:
        """Return the folder of the log, if it has one."""
        log_dir = self.directories.holding(handle.topic, handle.index)
        return None if log_dir is None else f"{log_dir.path}/{handle}"

    def _unrecovered(self, handle: LogHandle, log_dir: LogDir) -> Unrecovered:
        return log_dir.unrecovered(
            handle.topic,
            handle.index,
            self._view.topic_config(handle.topic),
            self._runtime.now_ms(),
            producer_id_expiration_ms=self._config.int("producer.id.expiration.ms"),
        )

    def open_log(self, handle: LogHandle) -> PartitionLog:
        """Open the log of a handle on its first use. Raises KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID."""
        topic, index = handle.topic, handle.index
        try:
            choices = self.directories.choices(topic, index, self._view.assigned(topic, index), is_new=handle.is_new)
        except KafkaError:
            # The log stays offline until the next start.
            handle.take_offline()
            raise
        for log_dir in choices:
            try:
                log = log_dir.open_log(
                    topic,
                    index,
                    handle.topic_id,
                    self._view.topic_config(topic),
                    self._runtime.now_ms(),
                    producer_id_expiration_ms=self._config.int("producer.id.expiration.ms"),
                )
                break
            except InconsistentTopicId as error:
                # Metadata and folder disagree. The data is kept, but not served as another topic's.
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, str(error)) from error
            except StorageError as error:
                self.directory_failed(error)
                if log_dir is choices[-1]:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{handle}: {error}") from error
        log.producers.verify = self._config.bool("transaction.partition.verification.enable")
        if log.recovery:
            # One line for each log in which there was something to check. Lines of empty logs would hide the others.
            logger.log(
                logging.INFO if log.log_end_offset else logging.DEBUG,
                "Partition %s: %s; the log ends at offset %d",
                handle,
                log.recovery,
                log.log_end_offset,
            )
        if log.missing_behind_end:
            self._missing.tell(str(handle), log.missing_behind_end)
        self._assignments.opened(handle, log_dir)
        return log

    # -- failing ------------------------------------------------------------------------------------------------------

    def directory_failed(self, error: StorageError) -> None:
        """Take the directory of the error offline with its logs, unless its disk is only full."""
        log_dir = self.directories.failed(error)
        if log_dir is not None:
            self.moves.directory_failed(log_dir)
            for handle in list(self):
                if log_dir.folders.holds(handle.topic, handle.index):
                    handle.take_offline()
            self.recovery.forget(lambda handle: handle.offline)
            self._on_directory_failure(log_dir, error)


def _log_gauges(handles: Iterable[LogHandle]) -> Iterator[tuple[str, float]]:
    """Yield Apache Kafka's gauges of each log. They are computed when a client reads the metrics. A log that is not
    open has none."""
    # Logs are opened and deleted while the caller pauses.
    for handle in list(handles):
        log = handle.log
        if log is not None:
            tags = f"topic={handle.topic},partition={handle.index}"
            yield f"kafka.log:type=Log,name=Size,{tags}", log.size_bytes
            yield f"kafka.log:type=Log,name=NumLogSegments,{tags}", len(log.files.segments)
            yield f"kafka.log:type=Log,name=LogStartOffset,{tags}", log.log_start_offset
            yield f"kafka.log:type=Log,name=LogEndOffset,{tags}", log.log_end_offset
