"""Periodic upkeep of a node's logs: checkpoints, retention, flushes. Kafka's LogManager schedules.

Responsible for the times of this work. The work on a log itself is in log/. Blocking work (fsync, removing files) runs
off the loop. Changes of a log run on the loop, a few logs in each turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.storage.log_handle import LogHandle
from pykbroker.storage.write_back import WriteBack
from pykbroker_log.deletion import delete_files
from pykbroker_log.disk import ColdRead, parent_of
from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.log_config import StorageError
from pykbroker_log.offset_checkpoints import OffsetCheckpoints
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.rolling import is_ripe_by_jumps

if TYPE_CHECKING:
    from pykbroker.config.typed_config import Config
    from pykbroker.runtime import Runtime
    from pykbroker.runtime.client_clock import ClockTimer
    from pykbroker.storage.logs import Logs

logger = logging.getLogger(__name__)

#: Logs that are looked at in one turn of the loop.
PER_TURN = 50
_LONGEST_MS = 86_400_000
_LOG_STARTS = "log start offsets"
_WRITE_BACK = "write-back"
_WRITE_BACK_MS = 200
_RETENTION = "retention"
_PRODUCERS = "producers"
_AFTER_INITIAL_DELAY = frozenset({"recovery points", _LOG_STARTS, _RETENTION})
#: work that clients notice
_FELT = frozenset({_RETENTION, _PRODUCERS})


class Upkeep:
    """The periodic timers of a node's logs."""

    def __init__(self, runtime: Runtime, config: Config, logs: Logs, bytes_in: Callable[[], int]) -> None:
        """`bytes_in` returns how many bytes have been appended to all logs since the start."""
        self._runtime = runtime
        self._logs = logs
        self._bytes_in = bytes_in
        self._timers: dict[str, ClockTimer] = {}
        self._busy: set[str] = set()
        self._stopped = False
        # True if segments have left a log and its start is not durable yet.
        self._starts_wanted = False
        # Directories in which the start could not be made durable because the disk is full.
        self._full: set[str] = set()
        write_back_bytes = config.int("pykbroker.write.back.bytes")
        self._write_back = WriteBack(runtime, write_back_bytes, self._check)
        # Kafka's LogManager waits this long after the start before it looks at the logs for the first time.
        self._initial_delay_ms = config.int("log.initial.task.delay.ms")
        self._schedule: dict[str, tuple[int, Callable[[], None]]] = {
            "high watermarks": (
                config.int("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint_high_watermarks,
            ),
            "recovery points": (
                config.int("log.flush.offset.checkpoint.interval.ms"),
                self._checkpoint_recovery_points,
            ),
            _LOG_STARTS: (
                config.int("log.flush.start.offset.checkpoint.interval.ms"),
                self._checkpoint_log_starts,
            ),
            _RETENTION: (config.int("log.retention.check.interval.ms"), self._retire),
            "deleted segments": (1_000, self._purge),
            _PRODUCERS: (config.int("producer.id.expiration.check.interval.ms"), self._forget_producers),
            "flush": (min(1_000, config.int("log.flush.scheduler.interval.ms")), self._flush_due),
        }
        if write_back_bytes:
            self._schedule[_WRITE_BACK] = (_WRITE_BACK_MS, self._look_for_unwritten)

    def start(self) -> None:
        for name, (period_ms, _) in self._schedule.items():
            self._arm(name, self._initial_delay_ms if name in _AFTER_INITIAL_DELAY else period_ms)

    def stop(self) -> None:
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._write_back.stop()

    def _arm(self, name: str, delay_ms: int) -> None:
        # A timer cannot hold a period of years.
        seconds = min(delay_ms, _LONGEST_MS) / 1000
        if name in _FELT:
            clock = self._runtime.client_clock
            self._timers[name] = clock.repeat_at(clock.time() + seconds, self._run, name)
        else:
            self._timers[name] = self._runtime.loop.call_later(seconds, self._run, name)

    def _run(self, name: str) -> None:
        if self._stopped:
            return
        period_ms, task = self._schedule[name]
        # The timer is set first, so that a task that fails is tried again.
        self._arm(name, period_ms)
        task()

    # -- checkpoints: collected on the loop, written on a thread ------------------------------------------------------

    def _checkpoint_high_watermarks(self) -> None:
        self._on_directories("high watermarks", OffsetCheckpoints.prepare_high_watermarks)

    def _checkpoint_recovery_points(self) -> None:
        self._on_directories("recovery points", OffsetCheckpoints.prepare_recovery_points)

    def _checkpoint_log_starts(self) -> None:
        self._on_directories(_LOG_STARTS, OffsetCheckpoints.prepare_log_start_offsets)

    def _on_directories(self, name: str, prepare: Callable[[OffsetCheckpoints], Callable[[], None]]) -> None:
        for log_dir in self._logs.directories.online():
            if (key := f"{name} {log_dir.path}") not in self._busy:
                write = prepare(log_dir.checkpoints)
                self._busy.add(key)
                self._runtime.run_blocking(write).add_done_callback(partial(self._written, key))

    def _written(self, key: str, done: asyncio.Future[None]) -> None:
        self._busy.discard(key)
        self._check(done)
        if key.startswith(_LOG_STARTS):
            error = None if done.cancelled() else done.exception()
            path = key.removeprefix(f"{_LOG_STARTS} ")
            if isinstance(error, StorageError) and error.is_full:
                self._full.add(path)
            else:
                self._full.discard(path)

    def _check(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StorageError):
            self._logs.directory_failed(error)
        elif error is not None:
            logger.error("Upkeep of the log directories failed", exc_info=error)

    # -- logs, a few a turn --------------------------------------------------------------------------------------------

    def _visit(self, name: str, task: Callable[[PartitionLog, int], object]) -> None:
        """Run a task on all open logs. A second round does not begin during the first."""
        if name not in self._busy:
            self._busy.add(name)
            self._visit_some(name, task, iter(list(self._logs)))

    def _visit_some(self, name: str, task: Callable[[PartitionLog, int], object], left: Iterator[LogHandle]) -> None:
        now_ms = self._runtime.now_ms()
        for count, handle in enumerate(left, 1):
            log = handle.log
            if log is not None:
                try:
                    task(log, now_ms)
                except StorageError as error:
                    self._logs.directory_failed(error)
                except BaseException:
                    # This is a bug, but it does not end these visits for good.
                    self._busy.discard(name)
                    raise
            if self._stopped:
                return
            if count == PER_TURN:
                self._runtime.loop.call_soon(self._visit_some, name, task, left)
                return
        self._busy.discard(name)

    def _retire(self) -> None:
        self._visit(_RETENTION, self._retire_unless_compacted)

    def _retire_unless_compacted(self, log: PartitionLog, now_ms: int) -> None:
        # The log cleaner handles compacted logs, also with `cleanup.policy=compact,delete`.
        if not log.config.compact:
            retire(self._logs, log, now_ms, self._runtime.client_clock.jumps)

    def _purge(self) -> None:
        if self._starts_wanted:
            # Do not wait for the checkpoint's own interval, because disk space becomes free only after the checkpoint.
            self._starts_wanted = False
            self._checkpoint_log_starts()
        self._visit("deleted segments", self._purge_log)

    def _purge_log(self, log: PartitionLog, now_ms: int) -> None:
        is_waiting = bool(log.files.deletion.retired)
        if is_waiting:
            self._starts_wanted = True
        is_full = is_waiting and parent_of(log.path) in self._full
        if is_full or log.files.deletion.is_due(now_ms):
            files = log.purge(now_ms, one_by_one=is_full)
            if files:
                # Removing a large file takes a tenth of a second.
                self._runtime.run_blocking(delete_files, self._runtime.disk, files).add_done_callback(self._check)

    def _forget_producers(self) -> None:
        self._visit(_PRODUCERS, self._remove_expired)

    def _remove_expired(self, log: PartitionLog, now_ms: int) -> None:
        producers = log.producers
        if producers.entries or producers.verifications:
            producers.remove_expired(now_ms, self._runtime.client_clock.jumps)

    # -- flush --------------------------------------------------------------------------------------------------------

    def _flush_due(self) -> None:
        self._visit("flush", self._flush_if_due)

    def _flush_if_due(self, log: PartitionLog, now_ms: int) -> None:
        if log.flush_due(now_ms):
            self._logs.flusher.want(log)

    def _look_for_unwritten(self) -> None:
        if self._write_back.is_worth_a_look(self._bytes_in()):
            self._visit(_WRITE_BACK, lambda log, now_ms: self._write_back.look(log))


def roll_by_jumps(log: PartitionLog, now_ms: int, jumps: Jumps) -> None:
    """Begin a new segment if jumps have ended the time of the active one (segment.ms), which otherwise an append would
    notice by its timestamp. Raises StorageError."""
    if jumps and log.files.is_sound and is_ripe_by_jumps(log.files.active, log.config, now_ms, jumps):
        log.roll(now_ms)


def retire(logs: Logs, log: PartitionLog, now_ms: int, jumps: Jumps = NO_JUMPS) -> None:
    """Remove the segments that retention no longer keeps; later, if a thread has to read their age first. Raises
    StorageError."""
    roll_by_jumps(log, now_ms, jumps)
    try:
        log.retire(now_ms, jumps, wait=False)
    except ColdRead as cold:
        retired = logs.cold_reads.retry(cold, lambda wait: log.retire(now_ms, jumps, wait=wait))
        retired.add_done_callback(partial(_retired, logs, log))


def _retired(logs: Logs, log: PartitionLog, done: asyncio.Future[int]) -> None:
    error = None if done.cancelled() else done.exception()
    if isinstance(error, StorageError):
        logs.directory_failed(error)
    elif error is not None:
        logger.error("%s: retention failed", log.name, exc_info=error)
