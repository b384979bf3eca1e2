"""Fsync of the metadata log: one at a time, and appends during it share the next.

A leader gathers records, but only if they come faster than fsyncs. Records that are appended while no fsync is under
way are flushed at once. Records that are appended during one wait for more, four times as long as that fsync took, and
controller.quorum.append.linger.ms at most. So a fast device is not left idle. Apache Kafka lets each batch linger for
that time (BatchAccumulator), so a lone CreateTopics waits there. A follower never lingers, because its leader waits for
it.

Responsible for what an fsync proves: that the log as it was at the beginning of the fsync is durable, unless it was cut
in the meantime. Not responsible for what follows from that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.quorum.blocking_calls import BlockingCalls

#: A leader gathers records for at most so many times the time of the fsync before, so that fsyncs take no more than a
#: fifth of the device's time.
_FSYNC_TIMES = 4


class MetadataFlush:
    """`flush` blocks and returns the log's end that it made durable. `flushed` is called with the offset up to which
    the log is durable, `failed` with an error. `linger_ms` returns the most milliseconds to gather now."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        calls: BlockingCalls,
        flush: Callable[[], int],
        end_offset: Callable[[], int],
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
        linger_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._linger_ms = linger_ms
        #: runs while a leader gathers records
        self._lingers: asyncio.TimerHandle | None = None
        self._calls = calls
        self._flush = flush
        self._end_offset = end_offset
        self._flushed = flushed
        self._failed = failed
        self._under_way = False
        self._wanted = False
        self._generation = 0
        self._closed = False

    def close(self) -> None:
        """Begin no other fsync after the one under way."""
        self._closed = True
        self._end_linger()

    def log_was_cut(self) -> None:
        """Note that offsets name other records from now on. An fsync under way proves nothing about them."""
        self._generation += 1

    def begin(self) -> None:
        """Fsync the records that are written by now. If an fsync is under way, another one begins after it, when a
        leader has gathered records."""
        if self._under_way:
            self._wanted = True
        elif self._lingers is None or not self._linger_ms():
            self._fsync()

    def _after_linger(self, fsync_s: float) -> None:
        linger_ms = self._linger_ms()
        if linger_ms:
            self._lingers = self._loop.call_later(min(linger_ms / 1000, _FSYNC_TIMES * fsync_s), self._fsync)
        else:
            self._fsync()

    def _end_linger(self) -> None:
        if self._lingers is not None:
            self._lingers.cancel()
            self._lingers = None

    def _fsync(self) -> None:
        self._end_linger()
        self._under_way = True
        generation = self._generation
        end_offset = self._end_offset()
        began_s = self._loop.time()

        def ended(future: asyncio.Future[int]) -> None:
            self._under_way = False
            error = None if future.cancelled() else future.exception()
            if error is not None:
                # The state of the page cache is unknown now, and a second fsync would report a false success.
                self._failed(error)
                return
            wanted, self._wanted = self._wanted, False
            is_proof = generation == self._generation
            if is_proof:
                self._flushed(min(end_offset, future.result()))
            if self._closed or self._under_way:
                return
            if not is_proof:
                self._fsync()
            elif wanted:
                self._after_linger(self._loop.time() - began_s)

        self._calls.run_fsync(self._flush, ended)
