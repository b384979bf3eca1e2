"""Logs without a clean stop: recovered one by one in worker processes while the node serves.

Responsible for which log is next, how many run at once (`num.recovery.threads.per.data.dir`), and failed jobs. Not
responsible for the work itself (pykbroker_log.recovery_job), for showing the progress (recovery_report.py), nor for
opening logs that need no recovery (logs.py).

Until its log is recovered, a partition answers NOT_LEADER_OR_FOLLOWER and its coordinator COORDINATOR_LOAD_IN_PROGRESS,
so clients wait and ask again.

Invariants:
* A log is opened by the job that recovers it or by this process, never by both.
* A partition that is deleted, a directory that fails and a stop end their jobs before anything else happens to the
  folder.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections.abc import Callable, Generator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from pykbroker.metadata.topic_names import INTERNAL_TOPICS
from pykbroker.runtime.workers import WorkerDied
from pykbroker.storage.log_handle import LogHandle
from pykbroker.storage.recovery_report import RecoveryReport
from pykbroker_log.disk import Disk
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.producers import BatchMetadata
from pykbroker_log.recovery_job import Recovered, Unrecovered, recover, unchecked_segments

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime
    from pykbroker.storage.directories import Directories

logger = logging.getLogger(__name__)

#: A log with at most this many bytes to check is small. It takes a few milliseconds even if each batch is one small
#: record.
SMALL_BYTES = 128 * 1024
#: The number of small logs that share a job and its fsyncs.
SMALL_PER_JOB = 64
#: If there are at most this many logs in all, each small one is recovered on the loop when it is opened, which takes
#: less time than starting a worker. With more of them the loop would wait too often for the file system's journal.
DIRECT_LOGS = 16
#: Folders that a thread looks at before it returns the first result.
_LOOKS_AT_ONCE = 64
#: A full disk may have space again after this time.
_RETRY_SECONDS = 10.0


_Parts: TypeAlias = Generator[int, None, list[Recovered]]


class _Work:
    """One log that has to be recovered, and its progress."""

    __slots__ = ("checked", "ends", "handle", "is_alone", "is_internal", "log_dir", "total")

    def __init__(self, handle: LogHandle, log_dir: LogDir, segments: list[int]) -> None:
        self.handle = handle
        self.log_dir = log_dir
        self.is_internal = handle.topic in INTERNAL_TOPICS
        self.total = sum(segments)
        #: the end of each segment, counted in bytes to check
        self.ends = list(accumulate(segments))
        self.checked = 0
        #: True after a job that it shared with other logs has failed
        self.is_alone = False

    @property
    def is_small(self) -> bool:
        return self.total <= SMALL_BYTES and not self.is_alone

    @property
    def left(self) -> int:
        return self.total - self.checked

    @property
    def segments_left(self) -> int:
        return sum(end > self.checked for end in self.ends)


class _Job:
    """Logs that one worker recovers, one after the other."""

    def __init__(self, works: list[_Work]) -> None:
        self.works = works
        self.future: asyncio.Future[list[Recovered]] | None = None

    def progressed(self, count: int) -> None:
        for work in self.works:
            part = min(work.left, count)
            work.checked += part
            count -= part

    @property
    def left(self) -> int:
        return sum(work.left for work in self.works)

    @property
    def segments_left(self) -> int:
        return sum(work.segments_left for work in self.works)

    @property
    def is_wanted(self) -> bool:
        return any(work.handle.recovering for work in self.works)

    def cancel(self) -> None:
        if self.future is not None:
            self.future.cancel()


class _Directory:
    """The queue of one log directory."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        # Logs that coordinators wait for come first, then the others, both by size.
        self.waiting: list[_Work] = []
        #: the running jobs by slot
        self.running: dict[int, _Job] = {}
        self.bytes = 0
        #: how many logs were recovered, and how many of them are empty
        self.recovered = self.empty = 0

    def add(self, work: _Work) -> None:
        insort(self.waiting, work, key=lambda work: (not work.is_internal, work.total))

    def take(self, slot: int, slots: int) -> _Job:
        """Take the smallest logs first, so that most partitions are back soon. The last of several slots begins with
        the largest, so that the end does not wait for the largest log alone."""
        waiting = self.waiting
        is_last = slot == slots - 1 and slots > 1
        if is_last and not waiting[0].is_internal and not waiting[-1].is_small:
            works = [waiting.pop()]
        else:
            count = 1
            while count < min(len(waiting), SMALL_PER_JOB) and waiting[count - 1].is_small and waiting[count].is_small:
                count += 1
            works = waiting[:count]
            del waiting[:count]
        job = self.running[slot] = _Job(works)
        return job

    @property
    def logs_left(self) -> int:
        return len(self.waiting) + sum(len(job.works) for job in self.running.values())

    @property
    def bytes_left(self) -> int:
        return sum(work.left for work in self.waiting) + sum(job.left for job in self.running.values())

    def segments_left(self, slot: int) -> int:
        job = self.running.get(slot)
        return 0 if job is None else job.segments_left


class LogRecovery:
    """The recovery of one node's logs."""

    def __init__(
        self,
        runtime: Runtime,
        metrics: Metrics,
        directories: Directories,
        unrecovered: Callable[[LogHandle, LogDir], Unrecovered],
        *,
        jobs: Callable[[], int],
        ready: Callable[[LogHandle], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        """`unrecovered` returns a job's input for one log, `jobs` how many may run for one directory. `ready` is called
        with each log that can be opened from now on, `failed` with the error of each disk that fails."""
        self._runtime = runtime
        self._directories = directories
        self._unrecovered = unrecovered
        self._slots = jobs
        self._ready = ready
        self._disk_failed = failed
        # Logs that no thread has looked at yet.
        self._found: list[LogHandle] = []
        self._queues: dict[LogDir, _Directory] = {}
        self.progress = RecoveryReport(runtime, metrics, self._queues.values())
        # Parts of recoveries on threads, used if there are no workers.
        self._parts: set[asyncio.Future[int | list[Recovered]]] = set()
        self._begun = False
        self._few = True
        self._when_begun: Callable[[], None] = lambda: None
        self._looking = False
        self._stopped = False

    # -- what is to be done -------------------------------------------------------------------------------------------

    def add(self, handle: LogHandle) -> None:
        """Recover the log before it is opened."""
        if handle.offline:
            return
        handle.await_recovery()
        self._found.append(handle)
        if self._begun:
            self._look_soon()

    def begin(self) -> None:
        """Begin to recover. Call it when the metadata is complete and unknown folders are set aside."""
        self._begun = True
        self._few = len(self._found) <= DIRECT_LOGS
        if self._found:
            self.progress.begin()
            self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._runtime.loop.call_soon(self._look)

    def _look(self) -> None:
        """Let a thread find out how much there is to check in some more folders."""
        found = self._found[-_LOOKS_AT_ONCE:]
        del self._found[-_LOOKS_AT_ONCE:]
        looked_at: list[tuple[LogHandle, LogDir]] = []
        folders: list[tuple[str, int]] = []
        for handle in found:
            if not handle.recovering:
                continue
            log_dir = self._directories.holding(handle.topic, handle.index)
            if log_dir is None or not log_dir.is_unrecovered(handle.topic, handle.index):
                # The folder of the log belonged to another topic of the same name, and is gone by now.
                self._free(handle)
                continue
            unrecovered = self._unrecovered(handle, log_dir)
            looked_at.append((handle, log_dir))
            folders.append((unrecovered.path, unrecovered.recovery_point))
        look = self._runtime.run_blocking(_unchecked, self._runtime.disk, folders)
        look.add_done_callback(partial(self._looked, looked_at))

    def _looked(
        self, looked_at: list[tuple[LogHandle, LogDir]], done: asyncio.Future[list[list[int] | OSError]]
    ) -> None:
        self._looking = False
        if self._stopped or done.cancelled():
            return
        for (handle, log_dir), segments in zip(looked_at, done.result(), strict=True):
            if handle.recovering:
                self._enter(handle, log_dir, segments)
        if self._found:
            self._look_soon()
            return
        self._when_begun()
        for directory in self._queues.values():
            if directory.logs_left and not directory.running:
                self.progress.log_begin(directory)
            self._fill(directory)
        self.progress.log_regularly()

    def _enter(self, handle: LogHandle, log_dir: LogDir, segments: list[int] | OSError) -> None:
        """Put a log into the queue of its directory."""
        if isinstance(segments, OSError):
            self._failed(_Work(handle, log_dir, []), segments)
            return
        work = _Work(handle, log_dir, segments)
        if self._few and work.is_small:
            # The log is recovered on the loop when it is opened.
            self._free(handle)
            return
        directory = self._queues.get(log_dir)
        if directory is None:
            directory = self._queues[log_dir] = _Directory(log_dir)
            self.progress.show(directory, self._slots())
        directory.add(work)
        directory.bytes += work.total

    # -- doing it -----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Apply a changed number of jobs."""
        for directory in list(self._queues.values()):
            self._fill(directory)

    def _fill(self, directory: _Directory) -> None:
        if self._stopped:
            return
        slots = self._slots()
        for slot in range(slots):
            if directory.waiting and slot not in directory.running:
                job = directory.take(slot, slots)
                job.future = self._runtime.run_apart(recover, self._logs_of(job), on_progress=job.progressed)
                job.future.add_done_callback(partial(self._done, directory, slot, job))
        if not directory.logs_left and directory.log_dir in self._queues:
            del self._queues[directory.log_dir]
            self.progress.end(directory)

    def _logs_of(self, job: _Job) -> list[Unrecovered]:
        return [self._unrecovered(work.handle, work.log_dir) for work in job.works]

    def _done(self, directory: _Directory, slot: int, job: _Job, done: asyncio.Future[list[Recovered]]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, WorkerDied) and not self._stopped and job.is_wanted:
            logger.warning(
                "Partition %s: its log is recovered again, in the process of the node: %s",
                ", ".join(str(work.handle) for work in job.works),
                error,
            )
            self._here(directory, slot, job)
            return
        del directory.running[slot]
        if error is not None:
            self._job_failed(directory, job, error)
        elif done.cancelled():
            self._take_back(directory, job)
        else:
            self._job_done(job, done.result())
        self._fill(directory)

    def _here(self, directory: _Directory, slot: int, job: _Job) -> None:
        """Run a job on a thread, part by part, because there is no worker."""
        for work in job.works:
            work.checked = 0
        self._next_part(directory, slot, job, recover(self._runtime.disk, self._logs_of(job)))

    def _next_part(self, directory: _Directory, slot: int, job: _Job, parts: _Parts) -> None:
        part = self._runtime.run_blocking(_part, parts)
        self._parts.add(part)
        part.add_done_callback(partial(self._part_done, directory, slot, job, parts))

    def _part_done(
        self,
        directory: _Directory,
        slot: int,
        job: _Job,
        parts: _Parts,
        part: asyncio.Future[int | list[Recovered]],
    ) -> None:
        self._parts.discard(part)
        if self._stopped or part.cancelled():
            parts.close()
            return
        error = part.exception()
        if error is not None:
            self._job_failed(directory, job, error)
        elif isinstance(found := part.result(), list):
            self._job_done(job, found)
        elif all(work.handle.recovering for work in job.works):
            job.progressed(found)
            self._next_part(directory, slot, job, parts)
            return
        else:
            parts.close()
            self._take_back(directory, job)
        del directory.running[slot]
        self._fill(directory)

    def _take_back(self, directory: _Directory, job: _Job) -> None:
        """Queue the other logs again, after a job was ended because of one of its logs."""
        for work in job.works:
            if work.handle.recovering and not self._stopped:
                work.checked = 0
                directory.add(work)

    def _job_done(self, job: _Job, found: list[Recovered]) -> None:
        for work, recovered in zip(job.works, found, strict=True):
            self._recovered(work, recovered)

    def _job_failed(self, directory: _Directory, job: _Job, error: BaseException) -> None:
        if len(job.works) == 1:
            self._failed(job.works[0], error)
            return
        # Run each log alone, which shows which of them fails.
        for work in job.works:
            work.is_alone = True
        self._take_back(directory, job)

    def _recovered(self, work: _Work, found: Recovered) -> None:
        if not work.handle.recovering:
            return
        for warning in found.warnings:
            logger.warning("Partition %s: %s", work.handle, warning)
        is_empty = found.log_end_offset == 0
        directory = self._queues.get(work.log_dir)
        if directory is not None:
            directory.recovered += 1
            directory.empty += is_empty
        if found.summary:
            # Lines of empty logs would hide the others.
            logger.log(
                logging.DEBUG if is_empty else logging.INFO,
                "Partition %s: %s; the log ends at offset %d",
                work.handle,
                found.summary,
                found.log_end_offset,
            )
        work.log_dir.recovered(work.handle.topic, work.handle.index, found.log_end_offset)
        self._free(work.handle, found.batches)

    def _failed(self, work: _Work, error: BaseException) -> None:
        handle = work.handle
        if not handle.recovering:
            return
        if isinstance(error, OSError):
            failure = StorageError(work.log_dir.path, error)
            if failure.is_full:
                logger.error("Partition %s: its log cannot be recovered while the disk is full: %s", handle, error)
                self._runtime.loop.call_later(_RETRY_SECONDS, self._try_again, handle)
            else:
                self._disk_failed(failure)
            return
        logger.error(
            "Partition %s: its log cannot be recovered, so the partition stays offline: %s",
            handle,
            error,
            exc_info=error,
        )
        handle.take_offline()

    def _try_again(self, handle: LogHandle) -> None:
        if handle.recovering and not self._stopped:
            self._found.append(handle)
            self._look_soon()

    def _free(self, handle: LogHandle, batches: Mapping[int, list[BatchMetadata]] | None = None) -> None:
        handle.recovered(batches)
        self._ready(handle)

    # -- what happens meanwhile ---------------------------------------------------------------------------------------

    def forget(self, gone: Callable[[LogHandle], bool]) -> None:
        """End the jobs of partitions that were deleted, or whose directory failed."""
        for directory in self._queues.values():
            directory.waiting = [work for work in directory.waiting if not gone(work.handle)]
            for job in directory.running.values():
                if any(gone(work.handle) for work in job.works):
                    job.cancel()
        self.fill()

    def stop(self) -> None:
        """Stop when the node stops. The next start recovers the rest. A few turns of the loop later no worker touches a
        log, and after `ended` no thread does."""
        self._stopped = True
        self.progress.stop()
        for directory in self._queues.values():
            for job in directory.running.values():
                job.cancel()

    async def ended(self) -> None:
        """Return, after `stop`, when no thread touches a log."""
        if self._parts:
            await asyncio.gather(*self._parts, return_exceptions=True)

    # -- telling ------------------------------------------------------------------------------------------------------

    def when_begun(self, callback: Callable[[], None]) -> None:
        """Set a callback that runs once, when it is known how much there is to recover in a directory."""
        self._when_begun = callback


def _unchecked(disk: Disk, folders: list[tuple[str, int]]) -> list[list[int] | OSError]:
    """Run on a thread. Return `unchecked_segments` of each (path, recovery point), or its error."""
    found: list[list[int] | OSError] = []
    for path, recovery_point in folders:
        try:
            found.append(unchecked_segments(disk, path, recovery_point))
        except OSError as error:
            found.append(error)
    return found


def _part(parts: _Parts) -> int | list[Recovered]:
    """Run on a thread. Return the progress of one step of the job, or its result."""
    try:
        return next(parts)
    except StopIteration as end:
        result: list[Recovered] = end.value
        return result
