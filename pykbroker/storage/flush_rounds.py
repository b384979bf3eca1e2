"""Rounds of fsync: callers that want logs to be durable wait for the next round, and share it.

One lane per log directory for flushes that requests wait for, and one for the others (a segment that ended, flush.ms),
which may take long. While the round of a lane is under way, further calls of `want` are collected for the next round.
Responsible for rounds, and for notifying one place when a directory's disk fails. Not responsible for when a log is to
be flushed (replica/partition.py, upkeep.py) nor for what has to be fsynced (pykbroker_log/flush_state.py).

Invariants:
* A log is in one round at a time. A call of `want` during a round is for the next round, because the last records may
  have missed this one.
* `then` runs on the loop when all records that were in the log at the call of `want` are durable. It does not run if
  the log was closed or its directory failed. The code that closes the log, or takes the directory offline, notifies the
  callers that wait.
* `then` may call `want` again, and returns a function that answers the requests. That function runs when the next
  round is under way.
* After a failed round the directory is offline. None of its files is fsynced again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.runtime import when_done
from pykbroker_log.disk import parent_of
from pykbroker_log.flush_state import Flush, only_files, sync
from pykbroker_log.log_config import StorageError
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import KafkaError

if TYPE_CHECKING:
    from pykbroker.metrics.registry import Metrics
    from pykbroker.runtime import Runtime

logger = logging.getLogger(__name__)

Then = Callable[[], Callable[[], None]]


class _Pass(NamedTuple):
    log: PartitionLog
    flush: Flush
    then: Then | None


class _Lane:
    """One lane of one directory."""

    __slots__ = ("log_dir", "running", "scheduled", "waiting")

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self.waiting: dict[PartitionLog, Then | None] = {}
        #: True during a round
        self.running = False
        self.scheduled = False


class FlushRounds:
    def __init__(self, runtime: Runtime, metrics: Metrics, failed: Callable[[StorageError], None]) -> None:
        """`failed` is called with the error of each round that failed."""
        self._runtime = runtime
        self._failed = failed
        self._lanes: dict[tuple[str, bool], _Lane] = {}
        self._in_round: set[PartitionLog] = set()
        name = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
        self._flushes = metrics.counter(name)
        self._time_ms = metrics.counter("kafka.log:type=LogFlushStats,name=LogFlushTotalTimeMs")

    def want(self, log: PartitionLog, then: Then | None = None) -> None:
        """Make the present content of the log durable. A `then` means that a caller waits."""
        key = parent_of(log.path), then is not None
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key[0])
        lane.waiting[log] = then
        if not lane.running and not lane.scheduled:
            lane.scheduled = True
            # The round begins at the end of this turn, so that records of other requests in this turn join it.
            self._runtime.loop.call_soon(self._start, lane)

    def _start(self, lane: _Lane) -> None:
        lane.scheduled = False
        if lane.running:
            return
        passes: list[_Pass] = []
        for log in [log for log in lane.waiting if log not in self._in_round]:
            then = lane.waiting.pop(log)
            try:
                passes.append(_Pass(log, log.begin_flush(), then))
            except KafkaError:
                # The log is closed, and the callers that wait are notified already.
                continue
            except StorageError as error:
                # The log failed before, and perhaps `failed` was not called yet.
                self._failed(error)
        if not passes:
            return
        lane.running = True
        self._in_round.update(each.log for each in passes)
        flushes = [each.flush for each in passes]
        ended = partial(self._ended, lane, passes, self._runtime.loop.time())
        files = only_files(flushes)
        if files is not None:
            self._runtime.fsync(files, ended)
        else:
            when_done(self._runtime.run_blocking(sync, self._runtime.disk, lane.log_dir, flushes), ended)

    def _ended(self, lane: _Lane, passes: list[_Pass], begin: float, error: BaseException | None) -> None:
        lane.running = False
        self._in_round.difference_update(each.log for each in passes)
        self._flushes.value += len(passes)
        self._time_ms.value += round((self._runtime.loop.time() - begin) * 1000)
        if error is not None:
            self._end_badly(lane, passes, error)
            return
        for each in passes:
            try:
                each.log.files.end_flush(each.flush)
            except StorageError as failure:
                self._failed(failure)
                return
        tell = [each.then() for each in passes if each.then is not None]
        for other in self._lanes.values():
            if other.log_dir == lane.log_dir and other.waiting:
                self._start(other)
        for news in tell:
            news()

    def _end_badly(self, lane: _Lane, passes: list[_Pass], error: BaseException) -> None:
        if not isinstance(error, OSError):
            logger.error("Log directory %s: a flush failed", lane.log_dir, exc_info=error)
            error = OSError(str(error))
        for other in self._lanes.values():
            if other.log_dir == lane.log_dir:
                other.waiting.clear()
        for each in passes:
            told = each.log.files.flush_failed(error)
        self._failed(told)
