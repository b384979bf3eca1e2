"""The acquisition of records of a share partition by a fetch, as Apache Kafka 4.3 does it (SharePartition.acquire).

Responsible for what one member gets of the batches that the log returned: whole batches (batch_optimized), or at most
the number that it asked for (record_limit, KIP-1206), or fewer near the delivery limit. Not responsible for reading.

Throttling, if the delivery limit is above 2: from half the limit on (at least 2), a fetch gets a part of a batch only.
It is a half at first, and half of that at each further delivery. On its last attempt a record is delivered alone. So
one record that kills its consumers does not take its whole batch with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pykbroker.share_partitions.delivery_states import ACQUIRED, ARCHIVED, AVAILABLE, ShareLimits
from pykbroker.share_partitions.in_flight import InFlightWindow
from pykbroker.share_partitions.lock_deadlines import deadline_of
from pykbroker.share_partitions.offset_runs import InFlightBatch

#: Below this delivery count nothing is throttled.
LEAST_THROTTLED: Final = 2


class Acquire(NamedTuple):
    """The request of a member for one share partition, with the batches that the log returned for it.

    `fetch_offset` is the offset at which the log was read, and `fetched` has the base offset and the last offset of
    each batch that it returned. `most_records` and `batch_size` are MaxRecords and BatchSize of the request;
    `limits_records` is its acquire mode record_limit. `aborted` are the ranges of aborted data batches, ascending; it
    is empty unless the group reads committed records.
    """

    member: str
    fetch_offset: int
    fetched: Sequence[tuple[int, int]]
    most_records: int
    batch_size: int
    limits_records: bool = False
    aborted: Sequence[tuple[int, int]] = ()


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired, with their delivery count: AcquiredRecords of the answer."""

    first: int
    last: int
    delivery_count: int


def throttled_from(delivery_limit: int) -> int:
    """Return the delivery count from which on a record is throttled."""
    return max(LEAST_THROTTLED, (delivery_limit + 1) // 2)


class Acquisition:
    """One call of `acquire`. `owner` is the member's number in `LockOwners`. `note_batch` is called with the number of
    offsets of each batch that comes into flight."""

    def __init__(
        self,
        window: InFlightWindow,
        ask: Acquire,
        owner: int,
        limits: ShareLimits,
        now_ms: int,
        note_batch: Callable[[int], object],
    ) -> None:
        self._window = window
        self._ask = ask
        self._owner = owner
        self._note_batch = note_batch
        self._limits = limits
        self._deadline_ms = deadline_of(now_ms, limits.lock_duration_ms)
        self._throttled_from = throttled_from(limits.delivery_count)
        self._left = 0
        self._taken = 0
        self._found: list[AcquiredRange] = []

    def run(self) -> list[AcquiredRange]:
        """Acquire, and return the ranges in their order."""
        ask, window = self._ask, self._window
        if ask.most_records <= 0 or not ask.fetched or ask.fetched[-1][1] < window.start:
            return []
        base = ask.fetched[0][0]
        if ask.fetch_offset < base:
            self._archive_missing(max(ask.fetch_offset, window.start), base - 1)
        last = self._bounded_last()
        if self._left > 0:
            self._acquire_between(max(base, window.start), last)
        self._archive_aborted()
        window.advance_start()
        return self._found

    def _bounded_last(self) -> int:
        """Set how many records may be acquired, and return the last offset of them.

        At the limit of record locks nothing after the window is acquired; what was released inside it is.
        """
        ask, window = self._ask, self._window
        last = ask.fetched[-1][1]
        self._left = min(ask.most_records, self._limits.record_locks - window.locked_span)
        if self._left <= 0:
            self._left = min(ask.most_records, window.next_offset - ask.fetch_offset)
            last = min(last, window.next_offset - 1)
        return last

    def _archive_missing(self, first: int, last: int) -> None:
        """The log returned nothing from `first` to `last`: compaction has removed those records."""
        window = self._window
        window.close_gaps(first, last)
        for piece in window.pieces(first, last):
            if isinstance(piece, InFlightBatch):
                batch = self._part(piece, first, last)
                for a, b in batch.runs_of(AVAILABLE, max(first, batch.first), min(last, batch.last)):
                    window.change(batch, a, b, AVAILABLE, ARCHIVED)

    def _part(self, batch: InFlightBatch, first: int, last: int) -> InFlightBatch:
        """Return the batch; with a state for each offset if it is available and not wholly between two offsets."""
        if batch.first >= first and batch.last <= last:
            return batch
        return self._window.track(batch, max(first, batch.first)) if batch.state == AVAILABLE else batch

    # -- what is in flight already, and what is not -------------------------------------------------------------------

    def _acquire_between(self, first: int, last: int) -> None:
        window = self._window
        after = window.next_offset
        for piece in window.pieces(first, min(last, after - 1)):
            if self._left <= self._taken:
                return
            if not isinstance(piece, InFlightBatch):
                self._acquire_new(*piece)
                continue
            a, b = max(first, piece.first), min(last, piece.last)
            throttled = piece.most_deliveries(a, b) >= self._throttled_from
            if throttled and self._taken:
                return
            taken = self._acquire_again(piece, a, b, throttled)
            if throttled and taken:
                return
        if last >= after and self._taken < self._left:
            self._acquire_new(max(first, after), last)

    def _acquire_again(self, batch: InFlightBatch, first: int, last: int, throttled: bool) -> int:
        """Acquire what is available of a batch in flight. Return how many records that is."""
        is_whole = batch.first >= first and batch.last <= last
        exceeds = self._ask.limits_records and batch.last - batch.first + 1 > self._left - self._taken
        if not batch.is_tracked:
            if batch.state != AVAILABLE:
                return 0
            if not is_whole or exceeds or throttled:
                batch = self._window.track(batch, first)
                last = min(last, batch.last)
        most = self._left - self._taken if self._ask.limits_records else last - first + 1
        taken = self._take_available(batch, first, last, most)
        self._taken += taken
        return taken

    def _take_available(self, batch: InFlightBatch, first: int, last: int, most: int) -> int:
        """Acquire at most so many of the available records between two offsets of a batch. Return how many they are."""
        limit = self._limits.delivery_count
        taken = 0
        is_throttled = False
        for a, b in batch.runs_of(AVAILABLE, first, last):
            for start, end, count in batch.counts(a, b):
                if limit > LEAST_THROTTLED and count == limit - 1:
                    most = min(most, 1)
                elif count >= self._throttled_from and not is_throttled:
                    # The first record that is throttled decides: those before it in a batch were delivered more often.
                    is_throttled = True
                    most = min(most, max(1, batch.span >> (count - self._throttled_from + 1)))
                size = min(end - start + 1, most - taken)
                if size <= 0:
                    return taken
                self._take(batch, start, start + size - 1, count)
                taken += size
        return taken

    def _take(self, batch: InFlightBatch, first: int, last: int, count: int) -> None:
        self._window.lock(batch, first, last, self._owner, self._deadline_ms)
        found = self._found
        if found and found[-1].last == first - 1 and found[-1].delivery_count == count + 1 and first != batch.first:
            found[-1] = AcquiredRange(found[-1].first, last, count + 1)
        else:
            found.append(AcquiredRange(first, last, count + 1))

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire offsets that were never in flight: whole batches of the log, up to the number that is left."""
        left = self._left - self._taken
        if last - first >= left:
            last = min(last, self._end_of_batch(first + left - 1))
        most = max(1, self._ask.batch_size)
        if self._ask.limits_records:
            self._add(InFlightBatch(first, last, AVAILABLE, 0))
            # The rest of the log's batch is in flight too, and can be acquired.
            self._window.note_available(first + left)
            last = min(last, first + left - 1)
            self._take_part(first, last)
        else:
            fetched = self._ask.fetched
            place = bisect_right(fetched, first, key=lambda batch: batch[0])
            start = first
            while last - start + 1 > most and place < len(fetched) and fetched[place][0] <= last:
                base = fetched[place][0]
                if base - start >= most:
                    self._take_new(start, base - 1)
                    start = base
                place += 1
            self._take_new(start, last)
        self._taken += last - first + 1

    def _take_new(self, first: int, last: int) -> None:
        batch = InFlightBatch(first, last, AVAILABLE, 0)
        self._add(batch)
        self._take(batch, first, last, 0)

    def _add(self, batch: InFlightBatch) -> None:
        self._window.add(batch)
        self._note_batch(batch.last - batch.first + 1)

    def _take_part(self, first: int, last: int) -> None:
        """Acquire offsets that have just come into flight, but not the rest of their batch."""
        at = first
        while at <= last and (batch := self._window.at_or_after(at)) is not None:
            if batch.last > last:
                batch = self._window.track(batch, at)
            end = min(last, batch.last)
            self._take(batch, at, end, 0)
            at = end + 1

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the fetched batch that has the offset, or the offset."""
        fetched = self._ask.fetched
        place = bisect_right(fetched, offset, key=lambda batch: batch[0]) - 1
        return max(offset, fetched[place][1]) if place >= 0 else offset

    # -- aborted transactions -----------------------------------------------------------------------------------------

    def _archive_aborted(self) -> None:
        """Archive what was acquired of aborted batches, so that no member gets it."""
        if not self._ask.aborted or not self._found:
            return
        kept: list[AcquiredRange] = []
        for found in self._found:
            at = found.first
            place = bisect_left(self._ask.aborted, at, key=lambda cut: cut[1])
            for a, b in self._ask.aborted[place:]:
                if a > found.last:
                    break
                a, b = max(a, at), min(b, found.last)
                if at < a:
                    kept.append(AcquiredRange(at, a - 1, found.delivery_count))
                self._archive(a, b)
                at = b + 1
            if at <= found.last:
                kept.append(AcquiredRange(at, found.last, found.delivery_count))
        self._found = kept

    def _archive(self, first: int, last: int) -> None:
        window = self._window
        at = first
        while at <= last:
            batch = window.at_or_after(at)
            assert batch is not None
            if not (batch.first >= at and batch.last <= last):
                batch = window.track(batch, at)
            end = min(last, batch.last)
            window.change(batch, at, end, ACQUIRED, ARCHIVED)
            at = end + 1
