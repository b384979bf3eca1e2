"""Logs that an unclean stop has left: brought back one by one while the node serves, in worker processes.

Responsible for: which log is next, how many at once (`num.recovery.threads.per.data.dir`), what becomes of a job that
fails, progress in the log and in Apache Kafka's metrics. Not responsible for the work itself (pykbroker_log.recovery),
nor for opening logs that need none of it (table.py).

Until its log is back a partition answers NOT_LEADER_OR_FOLLOWER, and its coordinator COORDINATOR_LOAD_IN_PROGRESS:
clients wait and ask again.

Invariants:
* A log is opened by one: the job that recovers it, or this process.
* A partition that is deleted, a directory that fails and a stop end their jobs before anything else happens to the
  folder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from pykbroker.metadata.names import INTERNAL_TOPICS
from pykbroker.workers import WorkerDied
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.recovery import Recovered, Unrecovered, recover, unchecked_segments

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.replica.partition import Partition
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

#: A log with no more to check than this is recovered in one turn of the loop: a few milliseconds even where every
#: batch is one small record, less than it takes to tell a worker.
DIRECT_BYTES = 128 * 1024
#: Folders looked at in one turn.
_LOOKS_PER_TURN = 20
#: "at least every two seconds"
_TELL_SECONDS = 1.5
#: A full disk may have space again.
_RETRY_SECONDS = 10.0


class _Work:
    """One log that is to be recovered, and how far that is."""

    __slots__ = ("checked", "ends", "future", "is_internal", "log_dir", "partition", "total")

    def __init__(self, partition: Partition, log_dir: LogDir, segments: list[int]) -> None:
        self.partition = partition
        self.log_dir = log_dir
        self.is_internal = partition.topic in INTERNAL_TOPICS
        self.total = sum(segments)
        #: of each segment, counted in bytes that are to be checked
        self.ends = list(accumulate(segments))
        self.checked = 0
        self.future: asyncio.Future[Recovered] | None = None

    def progressed(self, count: int) -> None:
        self.checked = min(self.total, self.checked + count)

    @property
    def left(self) -> int:
        return self.total - self.checked

    @property
    def segments_left(self) -> int:
        return sum(end > self.checked for end in self.ends)

    def cancel(self) -> None:
        if self.future is not None:
            self.future.cancel()


class _Directory:
    """The queue of one log directory."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        # Those for which coordinators wait, then by size.
        self.waiting: list[_Work] = []
        #: by slot
        self.running: dict[int, _Work] = {}
        self.bytes = 0

    def add(self, work: _Work) -> None:
        self.waiting.append(work)
        self.waiting.sort(key=lambda work: (not work.is_internal, work.total))

    def take(self, slot: int, slots: int) -> _Work:
        """The smallest first, so that most partitions are back soon; one of several slots begins with the largest, so
        that the end is not waiting for it alone."""
        is_last = slot == slots - 1 and slots > 1
        work = self.waiting.pop(-1 if is_last and not self.waiting[0].is_internal else 0)
        self.running[slot] = work
        return work

    def works(self) -> list[_Work]:
        return [*self.waiting, *self.running.values()]

    @property
    def logs_left(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def bytes_left(self) -> int:
        return sum(work.left for work in self.waiting) + sum(work.left for work in self.running.values())

    def segments_left(self, slot: int) -> int:
        work = self.running.get(slot)
        return 0 if work is None else work.segments_left


class LogRecovery:
    """Of one replica table, which says which partitions there are."""

    def __init__(self, runtime: Runtime, metrics: Metrics, table: ReplicaTable) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._table = table
        # Partitions nobody has looked at yet.
        self._found: list[Partition] = []
        self._directories: dict[LogDir, _Directory] = {}
        self._gauges: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._looking = False
        self._stopped = False
        self._started_at = 0.0

    # -- what is to be done -------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """A partition whose log is not to be opened before it is recovered."""
        partition.await_recovery()
        self._found.append(partition)
        if self._begun:
            self._look_soon()

    def begin(self) -> None:
        """The metadata is complete: what is not known by now has been set aside."""
        self._begun = True
        if self._found:
            self._started_at = self._runtime.loop.time()
            self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._runtime.loop.call_soon(self._look)

    def _look(self) -> None:
        """Some folders more: how much there is to check; what is next to nothing is done at once."""
        self._looking = False
        if self._stopped:
            return
        looks = _LOOKS_PER_TURN
        while self._found and looks > 0:
            looks = looks - 1 if self._look_at(self._found.pop()) else 0
        if self._found:
            self._look_soon()
            return
        for directory in self._directories.values():
            if directory.logs_left and not directory.running:
                logger.info(
                    "Recovering the logs in %s, which was not shut down cleanly: %d logs, %s to check",
                    directory.log_dir.path,
                    directory.logs_left,
                    _size(directory.bytes_left),
                )
            self._fill(directory)
        if self._timer is None and self._directories:
            self._timer = self._runtime.loop.call_later(_TELL_SECONDS, self._tell)

    def _look_at(self, partition: Partition) -> bool:
        """False if that took a while."""
        if not partition.recovering:
            return True
        log_dir = self._table.directories.holding(partition.topic, partition.index)
        if log_dir is None or not log_dir.is_unrecovered(partition.topic, partition.index):
            # Its folder was another topic's of the same name, and is gone by now.
            partition.recovered()
            return True
        unrecovered = self._unrecovered(partition, log_dir)
        try:
            segments = unchecked_segments(self._runtime.disk, unrecovered.path, unrecovered.recovery_point)
        except OSError as error:
            self._failed(_Work(partition, log_dir, []), error)
            return True
        work = _Work(partition, log_dir, segments)
        if work.total <= DIRECT_BYTES:
            # Where it is opened.
            partition.recovered()
            return False
        directory = self._directories.get(log_dir)
        if directory is None:
            directory = self._directories[log_dir] = _Directory(log_dir)
            self._show(directory)
        directory.add(work)
        directory.bytes += work.total
        return True

    def _unrecovered(self, partition: Partition, log_dir: LogDir) -> Unrecovered:
        return log_dir.unrecovered(
            partition.topic,
            partition.index,
            self._table.topic_config(partition.topic),
            self._runtime.now_ms(),
            producer_id_expiration_ms=self._table.config.int("producer.id.expiration.ms"),
        )

    # -- doing it -----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """The number of jobs that may run has changed."""
        for directory in list(self._directories.values()):
            self._fill(directory)

    def _slots(self) -> int:
        return self._table.config.int("num.recovery.threads.per.data.dir")

    def _fill(self, directory: _Directory) -> None:
        if self._stopped:
            return
        slots = self._slots()
        for slot in range(slots):
            if directory.waiting and slot not in directory.running:
                work = directory.take(slot, slots)
                job = self._unrecovered(work.partition, work.log_dir)
                work.future = self._runtime.run_apart(recover, job, on_progress=work.progressed)
                work.future.add_done_callback(partial(self._done, directory, slot, work))
        if not directory.logs_left and directory.log_dir in self._directories:
            del self._directories[directory.log_dir]
            if not directory.log_dir.offline:
                logger.info(
                    "Recovered the logs in %s: %s checked in %.1f s",
                    directory.log_dir.path,
                    _size(directory.bytes),
                    self._runtime.loop.time() - self._started_at,
                )
            if not self._directories:
                self._hide()

    def _done(self, directory: _Directory, slot: int, work: _Work, done: asyncio.Future[Recovered]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, WorkerDied) and not self._stopped and work.partition.recovering:
            logger.warning("Partition %s: its recovery is done again in this process: %s", work.partition, error)
            work.checked = 0
            steps = recover(self._runtime.disk, self._unrecovered(work.partition, work.log_dir))
            self._runtime.loop.call_soon(self._turn, directory, slot, work, steps)
            return
        del directory.running[slot]
        if error is not None:
            self._failed(work, error)
        elif not done.cancelled():
            self._recovered(work, done.result())
        self._fill(directory)

    def _turn(self, directory: _Directory, slot: int, work: _Work, steps: Generator[int, None, Recovered]) -> None:
        """A part of a recovery for which there is no worker."""
        if self._stopped:
            return
        try:
            if work.partition.recovering:
                work.progressed(next(steps))
                self._runtime.loop.call_soon(self._turn, directory, slot, work, steps)
                return
            steps.close()
        except StopIteration as end:
            self._recovered(work, end.value)
        except Exception as error:  # noqa: BLE001  # as if it came from a worker
            self._failed(work, error)
        del directory.running[slot]
        self._fill(directory)

    def _recovered(self, work: _Work, found: Recovered) -> None:
        if not work.partition.recovering:
            return
        for warning in found.warnings:
            logger.warning("Partition %s: %s", work.partition, warning)
        if found.summary:
            logger.info(
                "Partition %s: %s; the log ends at offset %d", work.partition, found.summary, found.log_end_offset
            )
        work.log_dir.recovered(work.partition.topic, work.partition.index, found.log_end_offset)
        work.partition.recovered(found.batches)

    def _failed(self, work: _Work, error: BaseException) -> None:
        partition = work.partition
        if not partition.recovering:
            return
        if isinstance(error, OSError):
            failure = StorageError(work.log_dir.path, error)
            if failure.is_full:
                logger.error("Partition %s: cannot be recovered while the disk is full: %s", partition, error)
                self._runtime.loop.call_later(_RETRY_SECONDS, self._try_again, partition)
            else:
                self._table.directory_failed(failure)
            return
        logger.error("Partition %s: cannot be recovered, it stays offline: %s", partition, error, exc_info=error)
        partition.take_offline()

    def _try_again(self, partition: Partition) -> None:
        if partition.recovering and not self._stopped:
            self._found.append(partition)
            self._look_soon()

    # -- what happens meanwhile ---------------------------------------------------------------------------------------

    def forget(self, gone: Callable[[Partition], bool]) -> None:
        """Partitions that were deleted, or whose directory failed: their jobs end."""
        for directory in self._directories.values():
            directory.waiting = [work for work in directory.waiting if not gone(work.partition)]
            for work in directory.running.values():
                if gone(work.partition):
                    work.cancel()
        self.fill()

    def stop(self) -> None:
        """The node stops. What is not recovered yet is so by the next start. A few turns of the loop later no worker
        touches a log any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for directory in self._directories.values():
            for work in directory.running.values():
                work.cancel()

    # -- telling ------------------------------------------------------------------------------------------------------

    def progress(self) -> tuple[int, int, int] | None:
        """(bytes checked, bytes to check, logs left); None when there is nothing to recover."""
        if not self._directories:
            return None
        total = sum(directory.bytes for directory in self._directories.values())
        left = sum(directory.bytes_left for directory in self._directories.values())
        return total - left, total, sum(directory.logs_left for directory in self._directories.values())

    def _tell(self) -> None:
        for directory in self._directories.values():
            logger.info(
                "Recovering the logs in %s: %d logs left, %s of %s left to check",
                directory.log_dir.path,
                directory.logs_left,
                _size(directory.bytes_left),
                _size(directory.bytes),
            )
        self._timer = self._runtime.loop.call_later(_TELL_SECONDS, self._tell)

    def _show(self, directory: _Directory) -> None:
        prefix = "kafka.log:type=LogManager,name="
        tags = f",dir={directory.log_dir.path}"
        self._gauge(f"{prefix}remainingLogsToRecover{tags}", lambda: directory.logs_left)
        for slot in range(self._slots()):
            self._gauge(
                f"{prefix}remainingSegmentsToRecover{tags},threadNum={slot}", partial(directory.segments_left, slot)
            )

    def _gauge(self, name: str, read: Callable[[], float]) -> None:
        self._metrics.gauge(name, read)
        self._gauges.append(name)

    def _hide(self) -> None:
        """As in Apache Kafka: once there is nothing to recover there are no such metrics."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for name in self._gauges:
            self._metrics.remove(name)
        self._gauges.clear()


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
