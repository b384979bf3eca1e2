"""Fsync of the metadata log: one at a time, and what is appended meanwhile shares the next.

Responsible for what an fsync proves: the log as it was when the fsync began, unless it was cut meanwhile. Not
responsible for what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykbroker.quorum.blocking_calls import BlockingCalls


class MetadataFlush:
    """`flush` blocks and returns the log's end that it made durable; `flushed` hears of the offset up to which that
    counts, `failed` of an error."""

    def __init__(
        self,
        calls: BlockingCalls,
        flush: Callable[[], int],
        end_offset: Callable[[], int],
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
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
        """The fsync under way is followed by no other."""
        self._closed = True

    def log_was_cut(self) -> None:
        """Offsets name other records from now on: an fsync under way proves nothing of them."""
        self._generation += 1

    def begin(self) -> None:
        """Fsync what is written by now, or after the fsync that is under way."""
        if self._under_way:
            self._wanted = True
            return
        self._under_way = True
        generation = self._generation
        end_offset = self._end_offset()

        def ended(future: asyncio.Future[int]) -> None:
            self._under_way = False
            error = None if future.cancelled() else future.exception()
            if error is not None:
                # What is in the page cache now is anybody's guess; a second fsync would lie.
                self._failed(error)
                return
            wanted, self._wanted = self._wanted, False
            if generation != self._generation:
                wanted = True
            else:
                self._flushed(min(end_offset, future.result()))
            if wanted and not self._closed:
                self.begin()

        self._calls.run(self._flush, ended)
