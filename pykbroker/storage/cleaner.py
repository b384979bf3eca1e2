"""The log cleaner: picks the compacted log that would gain most, lets a worker process clean it, and puts the result
into the log. Apache Kafka's LogCleaner and LogCleanerManager.

Responsible for the time and the choice of cleanings, for logs that cannot be cleaned, and for the retention of
compacted logs, as in Apache Kafka. `log.cleaner.threads` cleanings run at once. After a cleaning the next one begins at
once. If no log needs one, the cleaner looks again after `log.cleaner.backoff.ms`. Not responsible for the cleanable
part of a log (`pykbroker_log/dirty_segments.py`), for cleaning (`pykbroker_log/compaction.py`) nor for replacing
segments safely (`pykbroker_log/replacement.py`).

Invariants:
* A log has at most one cleaning, and no retention during it. It has no cleaning while it moves to another directory.
* The cleanable part of a log is flushed before a worker reads it.
* The checkpoint of a log moves when the whole result of the cleaning is in the log.
* A log with damaged records is not cleaned until the next start. A disk that fails takes its directory offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykbroker.runtime.workers import WorkerDied
from pykbroker.storage.log_handle import LogHandle
from pykbroker.storage.upkeep import retire, roll_by_jumps
from pykbroker_log.compaction import CleanedSegment, CleanerMemory, CleanerStats, CleaningResult, MapComplete, clean
from pykbroker_log.dirty_segments import Cleanable, cleanable
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.dedupe import SEED_SIZE

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime
    from pykbroker.storage.logs import Logs
    from pykbroker_log.replacement import Replacement

logger = logging.getLogger(__name__)

#: Logs that are looked at in one turn of the loop.
_PER_TURN = 50
_FLUSH_MS = 20
_MAX_MAP_BYTES = (1 << 31) - 1
_MIB = 1 << 20


@dataclass(slots=True, frozen=True)
class _Settings:
    threads: int
    backoff_ms: int
    memory: CleanerMemory
    bytes_per_second: float | None

    @classmethod
    def of(cls, config: Config) -> _Settings:
        """Return the settings of one thread: the threads share memory and throughput."""
        threads = config.int("log.cleaner.threads")
        each = max(1, threads)
        rate = config.float("log.cleaner.io.max.bytes.per.second") / each
        return cls(
            threads=threads if config.bool("log.cleaner.enable") else 0,
            backoff_ms=config.int("log.cleaner.backoff.ms"),
            memory=CleanerMemory(
                map_bytes=min(config.int("log.cleaner.dedupe.buffer.size") // each, _MAX_MAP_BYTES),
                load_factor=config.float("log.cleaner.io.buffer.load.factor"),
                # one buffer to read, one to write
                io_buffer_bytes=config.int("log.cleaner.io.buffer.size") // each // 2,
            ),
            bytes_per_second=rate,
        )


@dataclass(slots=True)
class _Chosen:
    handle: LogHandle
    log: PartitionLog
    log_dir: LogDir
    cleanable: Cleanable


@dataclass(slots=True)
class _Thread:
    """The state of one cleaner thread of Apache Kafka. Here it is a task."""

    number: int
    stats: CleanerStats = field(default_factory=CleanerStats)
    seconds: float = 0.0
    max_delay_ms: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def is_dead(self) -> bool:
        task = self.task
        return task is not None and task.done() and not task.cancelled() and task.exception() is not None


class LogCleaner:
    """The log cleaner of one node."""

    def __init__(self, runtime: Runtime, config: Config, logs: Logs, metrics: Metrics) -> None:
        self._runtime = runtime
        self._logs = logs
        self._settings = _Settings.of(config)
        self._threads: list[_Thread] = []
        self._in_progress: set[PartitionLog] = set()
        self._uncleanable: dict[PartitionLog, LogDir] = {}
        self._max_dirty_ratio = 0.0
        self._last_run_ms = runtime.now_ms()
        self._started = False
        self._add_gauges(metrics)

    def _add_gauges(self, metrics: Metrics) -> None:
        name = "kafka.log:type=LogCleaner,name="
        threads = self._threads
        gauges: dict[str, Callable[[], float]] = {
            "cleaner-recopy-percent": self._recopy_percent,
            "max-buffer-utilization-percent": lambda: _greatest(t.stats.buffer_utilization * 100 for t in threads),
            "max-clean-time-secs": lambda: _greatest(t.seconds for t in threads),
            "max-compaction-delay-secs": lambda: _greatest(t.max_delay_ms / 1000 for t in threads),
            "DeadThreadCount": lambda: sum(thread.is_dead for thread in threads),
        }
        for gauge, read in gauges.items():
            metrics.gauge(name + gauge, read)
        name = "kafka.log:type=LogCleanerManager,name="
        metrics.gauge(name + "max-dirty-percent", lambda: int(100 * self._max_dirty_ratio))
        metrics.gauge(name + "time-since-last-run-ms", lambda: self._runtime.now_ms() - self._last_run_ms)
        for log_dir in self._logs.directories:
            tag = f",logDirectory={log_dir.path}"

            def count(log_dir: LogDir = log_dir) -> int:
                return len(self._uncleanable_in(log_dir))

            def size(log_dir: LogDir = log_dir) -> int:
                return sum(self._cleanable(log, log_dir).cleanable_bytes for log in self._uncleanable_in(log_dir))

            metrics.gauge(f"{name}uncleanable-partitions-count{tag}", count)
            metrics.gauge(f"{name}uncleanable-bytes{tag}", size)

    def _recopy_percent(self) -> int:
        read = sum(thread.stats.bytes_read for thread in self._threads)
        return 100 * sum(thread.stats.bytes_written for thread in self._threads) // max(1, read)

    # -- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._started = True
        self._threads[:] = [_Thread(number) for number in range(self._settings.threads)]
        for thread in self._threads:
            thread.task = self._task(self._work(thread), f"log cleaner {thread.number}")

    def stop(self) -> None:
        """Stop. Cleanings under way end without a result."""
        self._started = False
        for thread in self._threads:
            if thread.task is not None:
                thread.task.cancel()

    def reconfigure(self, config: Config) -> None:
        """All keys of `log.cleaner.*` that affect the cleaner are dynamic. On a change it starts afresh, as in Apache
        Kafka."""
        settings = _Settings.of(config)
        if settings != self._settings:
            self._settings = settings
            if self._started:
                self.stop()
                self.start()

    def _task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine, loop=self._runtime.loop)
        task.set_name(name)
        task.add_done_callback(_tell_of_death)
        return task

    # -- one thread ---------------------------------------------------------------------------------------------------

    async def _work(self, thread: _Thread) -> None:
        while True:
            chosen = await self._choose(thread)
            has_cleaned = chosen is not None and await self._clean(thread, chosen)
            await self._retire()
            if not has_cleaned:
                await self._rest(self._settings.backoff_ms)

    async def _pause(self, milliseconds: int) -> None:
        future = self._runtime.loop.create_future()
        timer = self._runtime.loop.call_later(milliseconds / 1000, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    async def _rest(self, milliseconds: int) -> None:
        """Wait on the clock that clients feel, because a record past delete.retention.ms is gone after the next
        cleaning."""
        clock = self._runtime.client_clock
        future = clock.loop.create_future()
        timer = clock.repeat_at(clock.time() + milliseconds / 1000, _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    async def _compacted(self, visit: Callable[[LogHandle, PartitionLog, LogDir], None]) -> None:
        """Visit all open compacted logs that no thread works on, a few in each turn. A directory that fails goes
        offline."""
        for count, handle in enumerate(list(self._logs), 1):
            log = handle.log
            if log is not None and log.config.compact and self._is_free(handle, log):
                log_dir = self._logs.directories.holding(handle.topic, handle.index)
                try:
                    if log_dir is not None:
                        visit(handle, log, log_dir)
                except OSError as error:
                    assert log_dir is not None
                    self._logs.directory_failed(StorageError(log_dir.path, error))
                except StorageError as error:
                    self._logs.directory_failed(error)
            if count % _PER_TURN == 0:
                await _Turn()

    def _is_free(self, handle: LogHandle, log: PartitionLog) -> bool:
        is_away = not log.files.is_open or handle.offline or handle in self._logs.moves
        return not is_away and log not in self._in_progress and log not in self._uncleanable

    def _uncleanable_in(self, log_dir: LogDir) -> list[PartitionLog]:
        # Logs that were deleted in the meantime do not count.
        self._uncleanable = {log: where for log, where in self._uncleanable.items() if not log.files.is_closed}
        return [log for log, where in self._uncleanable.items() if where is log_dir]

    def _cleanable(self, log: PartitionLog, log_dir: LogDir) -> Cleanable:
        jumps, now_ms = self._runtime.client_clock.jumps, self._runtime.now_ms()
        return cleanable(log, log_dir.checkpoints.cleaner_offset(log), now_ms, jumps)

    async def _choose(self, thread: _Thread) -> _Chosen | None:
        """Choose the log with the greatest dirty ratio. From now on this thread cleans it."""
        self._last_run_ms = self._runtime.now_ms()
        found: list[_Chosen] = []
        invalid: set[LogDir] = set()

        def look(handle: LogHandle, log: PartitionLog, log_dir: LogDir) -> None:
            roll_by_jumps(log, self._runtime.now_ms(), self._runtime.client_clock.jumps)
            one = self._cleanable(log, log_dir)
            cleaned = log_dir.checkpoints.cleaner_offset(log)
            if cleaned is not None and cleaned != one.first_dirty_offset:
                if one.invalid_checkpoint:
                    logger.warning(
                        "Partition %s: its offset in cleaner-offset-checkpoint cannot be used: %s. Cleaning begins at "
                        "offset %d",
                        handle,
                        one.invalid_checkpoint,
                        one.first_dirty_offset,
                    )
                log_dir.checkpoints.set_cleaner_offset(log, one.first_dirty_offset)
                invalid.add(log_dir)
            if one.total_bytes:
                found.append(_Chosen(handle, log, log_dir, one))

        await self._compacted(look)
        for log_dir in invalid:
            await self._checkpoint(log_dir)
        # Other threads may have begun to clean some of these logs during the look.
        found = [one for one in found if self._is_free(one.handle, one.log)]
        thread.max_delay_ms = max((one.cleanable.delay_ms for one in found), default=0)
        self._max_dirty_ratio = max((one.cleanable.ratio for one in found), default=0.0)
        found = [
            one
            for one in found
            if one.cleanable.must_be_cleaned or one.cleanable.ratio > one.log.config.min_cleanable_dirty_ratio
        ]
        if not found:
            return None
        chosen = max(found, key=lambda one: one.cleanable.ratio)
        self._in_progress.add(chosen.log)
        return chosen

    async def _retire(self) -> None:
        """Apply retention to compacted logs: `cleanup.policy=compact,delete`, and records before a log's start."""
        runtime = self._runtime
        await self._compacted(
            lambda handle, log, log_dir: retire(self._logs, log, runtime.now_ms(), runtime.client_clock.jumps)
        )

    async def _flush(self, log: PartitionLog) -> None:
        """Return when the present content of the log is durable, or when the log is closed or cut."""
        end = log.log_end_offset
        if log.recovery_point < end:
            self._logs.flusher.want(log)
        while not log.files.is_closed and log.recovery_point < min(end, log.log_end_offset):
            # A round of flushes takes at least this time, and no request waits for a cleaning.
            await self._pause(_FLUSH_MS)

    # -- one cleaning -------------------------------------------------------------------------------------------------

    async def _clean(self, thread: _Thread, chosen: _Chosen) -> bool:
        log = chosen.log
        replacement: Replacement | None = None
        try:
            await self._flush(log)
            if chosen.log_dir.checkpoints.cleaner_offset(log) is None:
                # A later start must know that the log may have gaps, even if this cleaning stops half way.
                chosen.log_dir.checkpoints.set_cleaner_offset(log, chosen.cleanable.first_dirty_offset)
                await self._checkpoint(chosen.log_dir)
            is_away = not log.files.is_open or chosen.handle in self._logs.moves
            if is_away or log.recovery_point < chosen.cleanable.first_uncleanable_offset:
                # The log may also have been cut in the meantime.
                return False
            replacement = log.begin_replacement(
                chosen.cleanable,
                memory=self._settings.memory,
                seed=self._runtime.random.randbytes(SEED_SIZE),
                now_ms=self._runtime.now_ms(),
                jumps=self._runtime.client_clock.jumps,
            )
            return await self._run(thread, chosen, replacement)
        except WorkerDied as error:
            logger.warning("Partition %s: its cleaning ended without a result: %s", chosen.handle, error)
        except StorageError as error:
            self._logs.directory_failed(error)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one log, the others are cleaned
            if replacement is not None and replacement.is_overtaken:
                logger.debug("Partition %s: its cleaning was overtaken: %s", chosen.handle, error)
            elif isinstance(error, OSError):
                self._logs.directory_failed(StorageError(chosen.log_dir.path, error))
            else:
                logger.warning(
                    "Unexpected exception thrown when cleaning log %s. Marking its partition (%s) as uncleanable: %s",
                    log,
                    chosen.handle,
                    error,
                )
                self._uncleanable[log] = chosen.log_dir
        finally:
            self._in_progress.discard(log)
            if replacement is not None:
                self._end(log)
        return False

    def _end(self, log: PartitionLog) -> None:
        try:
            log.end_replacement()
        except StorageError as error:
            self._logs.directory_failed(error)

    async def _run(self, thread: _Thread, chosen: _Chosen, replacement: Replacement) -> bool:
        """Return True if the log is cleaned now."""
        runtime, cleaning = self._runtime, replacement.cleaning
        begun = runtime.loop.time()
        indexed = begun
        segments: deque[CleanedSegment] = deque()
        wake = runtime.loop.create_future()

        def on_progress(part: object) -> None:
            nonlocal indexed
            if isinstance(part, CleanedSegment):
                segments.append(part)
                _wake(wake)
            elif isinstance(part, MapComplete):
                indexed = runtime.loop.time()
            elif replacement.is_void or chosen.log.files.is_closed:
                job.cancel()

        job: asyncio.Future[CleaningResult] = runtime.run_apart(
            clean, cleaning, on_progress=on_progress, bytes_per_second=self._settings.bytes_per_second
        )
        job.add_done_callback(lambda done: _wake(wake))
        try:
            while segments or not job.done():
                if segments:
                    for sync in replacement.steps(segments.popleft(), runtime.now_ms()):
                        await runtime.run_blocking(sync)
                else:
                    await wake
                    wake = runtime.loop.create_future()
            if job.cancelled():
                return False
            cleaned = job.result()
            if replacement.is_overtaken:
                return False
        finally:
            job.cancel()
        chosen.log_dir.checkpoints.set_cleaner_offset(chosen.log, cleaned.end_offset)
        await self._checkpoint(chosen.log_dir)
        thread.stats = cleaned.stats
        thread.seconds = runtime.loop.time() - begun
        logger.info(
            "%s", _summary(thread, chosen.handle, cleaning.first_dirty_offset, cleaned.end_offset, indexed - begun)
        )
        return True

    async def _checkpoint(self, log_dir: LogDir) -> None:
        if not log_dir.offline:
            await self._runtime.run_blocking(log_dir.checkpoints.prepare_cleaner_offsets())


class _Turn:
    """Awaiting it lets one turn of the loop pass, on any kind of loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _greatest(values: Any) -> int:
    return int(max(values, default=0))


def _tell_of_death(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.error("A thread of the log cleaner died (log.cleaner.threads)", exc_info=error)


def _summary(thread: _Thread, handle: LogHandle, start: int, end: int, index_seconds: float) -> str:
    """Return the text that Apache Kafka logs after a cleaning."""
    stats = thread.stats
    seconds = max(thread.seconds, 0.001)
    rest = max(seconds - index_seconds, 0.001)
    read, written = max(1, stats.bytes_read), stats.bytes_written
    fewer = 1 - stats.messages_written / max(1, stats.messages_read)
    invalid = f" Found {stats.invalid_messages} invalid messages during compaction." if stats.invalid_messages else ""
    return (
        f"Log cleaner thread {thread.number} cleaned log {handle} (dirty section = [{start}, {end}]): "
        f"{read / _MIB:,.1f} MB of log processed in {seconds:,.1f} seconds ({read / _MIB / seconds:,.1f} MB/sec). "
        f"Indexed {stats.map_bytes_read / _MIB:,.1f} MB in {index_seconds:,.1f} seconds "
        f"({stats.map_bytes_read / _MIB / max(index_seconds, 0.001):,.1f} MB/sec). "
        f"Buffer utilization: {100 * stats.buffer_utilization:.1f}%. "
        f"Cleaned {read / _MIB:,.1f} MB in {rest:,.1f} seconds ({read / _MIB / rest:,.1f} MB/sec). "
        f"Start size: {read / _MIB:,.1f} MB ({stats.messages_read:,} messages). "
        f"End size: {written / _MIB:,.1f} MB ({stats.messages_written:,} messages). "
        f"{100 * (1 - written / read):.1f}% size reduction ({100 * fewer:.1f}% fewer messages).{invalid}"
    )
