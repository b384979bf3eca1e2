"""When the locks of a share partition end: one queued deadline for each batch in flight.

Responsible for the order. The deadlines themselves are in the batches. A batch is queued under a time that is not later
than its earliest lock: a renewal leaves it where it is, and it is queued anew when that time has come. So there are
about as many entries as batches, however often a client renews.

Deadlines are multiples of TICK_MS. So a batch whose offsets were locked one by one is looked at at most once in a tick.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from pykbroker.share_partitions.offset_runs import NEVER, InFlightBatch

#: A lock ends at most this much later than its duration.
TICK_MS: Final = 50
#: Entries of batches that are gone stay until their time, or until there are this many and twice those of batches.
_MOST_STALE: Final = 64


def deadline_of(now_ms: int, duration_ms: int) -> int:
    """Return the tick at which a lock ends that is taken now."""
    return -(-(now_ms + duration_ms) // TICK_MS) * TICK_MS


class LockDeadlines:
    """The queued batches of one share partition, each by its last offset, which never changes while it is queued."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, batch: InFlightBatch, deadline_ms: int) -> None:
        """Queue a batch that has a lock until `deadline_ms`, if it is not queued under an earlier time."""
        if deadline_ms < batch.queued_ms:
            batch.queued_ms = deadline_ms
            heappush(self._queue, (deadline_ms, batch.last))

    def next_ms(self) -> int | None:
        """Return the time of the first entry, or None. At that time a lock may have ended, but need not."""
        return self._queue[0][0] if self._queue else None

    def pop_due(self, now_ms: int) -> tuple[int, int] | None:
        """Return the first entry whose time has come, as its time and the last offset of its batch, or None."""
        return heappop(self._queue) if self._queue and self._queue[0][0] <= now_ms else None

    def drop_stale(self, batches: Iterable[InFlightBatch], count: int) -> None:
        """Remove the entries of batches that are gone, if they are more than those of the `count` batches in flight."""
        if len(self._queue) > _MOST_STALE + 2 * count:
            self._queue = [(batch.queued_ms, batch.last) for batch in batches if batch.queued_ms != NEVER]
            heapify(self._queue)
