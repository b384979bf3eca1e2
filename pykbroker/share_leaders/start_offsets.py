"""Finds the first offset of a share partition whose group has none yet (share.auto.offset.reset, KIP-932 and KIP-1106).

Responsible for waiting until the log can answer. After an unclean stop the log is recovered first. A new leader may not
know yet how much of it is committed. A search by time may need a device or several turns. As in Apache Kafka, `latest`
is the high watermark, also for a group that reads committed records.

In Apache Kafka 4.3, a load by_duration fails with OFFSET_NOT_AVAILABLE if no record is that new. Here the share
partition then starts at the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.config.kinds import duration_ms
from pykbroker.net.promise import Promise
from pykbroker.replica.search_turns import SearchTurns
from pykbroker.share_leaders.leader_configs import BY_DURATION, EARLIEST, LATEST
from pykbroker_log.log_config import StorageError
from pykbroker_log.time_search import TimeSearch
from pykbroker_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio

    from pykbroker.replica.batch_checks import BatchChecks
    from pykbroker.replica.partition import Partition
    from pykbroker.runtime import Runtime
    from pykbroker.runtime.cold_reads import ColdReads


class StartOffsets:
    """The searches of one broker."""

    def __init__(self, runtime: Runtime, cold_reads: ColdReads, batch_checks: BatchChecks) -> None:
        self._runtime = runtime
        self._cold_reads = cold_reads
        self._batch_checks = batch_checks

    def find(self, partition: Partition, reset: str) -> Promise:
        """Return a promise of the offset at which a group starts. `reset` is share.auto.offset.reset. The promise fails
        with KafkaError if this broker does not lead the partition, or no longer, or if its log has failed. Cancel it to
        stop the search."""
        search = _Search(self._runtime, self._cold_reads, self._batch_checks, partition, reset)
        search.begin()
        return search.found


class _Search:
    """One search. It gives up quietly once its promise is cancelled."""

    def __init__(
        self,
        runtime: Runtime,
        cold_reads: ColdReads,
        batch_checks: BatchChecks,
        partition: Partition,
        reset: str,
    ) -> None:
        self._runtime = runtime
        self._cold_reads = cold_reads
        self._batch_checks = batch_checks
        self._partition = partition
        self._reset = reset
        self.found = Promise()

    def begin(self) -> None:
        partition = self._partition
        if partition.recovering:
            partition.when_recovered(partial(self._step, self._after_recovery))
        else:
            self._step(self._after_recovery)

    def _step(self, step: Callable[[], None]) -> None:
        if self.found.done():
            return
        try:
            step()
        except KafkaError as error:
            self.found.set_exception(error)

    def _after_recovery(self) -> None:
        """Wait until the leader knows that everything before its epoch is committed (as ListOffsets does)."""
        partition = self._partition
        leader, log = partition.require_leader(), partition.log
        begins = leader.start_offset
        if self._reset != EARLIEST and begins is not None and begins > log.high_watermark:
            waiter = partition.when_committed(begins, self._committed)
            if waiter is not None:
                self.found.when_cancelled(partial(partition.forget, waiter))
        else:
            self._look()

    def _committed(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._step(self._look)
        elif not self.found.done():
            self.found.set_exception(KafkaError(error))

    def _look(self) -> None:
        self._partition.require_leader()
        log = self._partition.log
        if self._reset == LATEST:
            self.found.set_result(log.high_watermark)
        elif self._reset == EARLIEST:
            self.found.set_result(log.log_start_offset)
        else:
            self._look_by_time()

    def _look_by_time(self) -> None:
        age_ms = duration_ms(self._reset.removeprefix(BY_DURATION))
        timestamp = max(0, self._runtime.client_clock.jumps.oldest_within(self._runtime.now_ms(), age_ms))
        search = TimeSearch()
        turns = SearchTurns(
            self._runtime.loop,
            self._cold_reads,
            self._batch_checks,
            search,
            partial(_offset_at, self._partition, timestamp, search),
        )
        self.found.when_cancelled(lambda: _cancel(turns.future))
        turns.begin()
        turns.future.add_done_callback(self._looked)

    def _looked(self, future: asyncio.Future[int]) -> None:
        if self.found.done():
            return
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) if future.cancelled() else future.exception()
        if error is None:
            self.found.set_result(future.result())
        else:
            self.found.set_exception(error)


def _offset_at(partition: Partition, timestamp: int, search: TimeSearch, wait: bool) -> int:
    """Return the offset of the first committed record that is at least this new, or the high watermark."""
    partition.require_leader()
    log = partition.log
    try:
        found = log.offset_for_timestamp(timestamp, wait=wait, search=search)
    except StorageError as error:
        raise partition.storage_failed(error) from error
    return log.high_watermark if found is None else min(found[0], log.high_watermark)


def _cancel(future: asyncio.Future[int]) -> None:
    future.cancel()
