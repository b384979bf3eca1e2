"""The window of a share partition: the offsets between its start and the next one that was never fetched.

Responsible for the batches in flight in their order, for gaps, for the start (SPSO), and for counts over all of them.
Not responsible for who may change what: `acquisition.py` and `share_partition.py` decide that.

Between batches there are two kinds of holes. A gap may have records: a loaded state says nothing about it, because the
last leader had acquired it only. It is fetched before anything after it, and the start does not pass it. Any other hole
has none, because a fetch of that place returned a later batch. The start passes it.

Invariants: batches and gaps are disjoint and ascending; the start is at or before the first of both; gaps exist only
before a batch; nothing is in flight before the start. `delivered` is the number of offsets in flight that are
acknowledged or archived, those whose write is out included (Apache Kafka: deliveryCompleteCount).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from pykbroker.share_partitions.delivery_states import ACQUIRED, DELIVERED, PENDING
from pykbroker.share_partitions.lock_deadlines import LockDeadlines
from pykbroker.share_partitions.offset_runs import MOST_TRACKED, NEVER, InFlightBatch


class InFlightWindow:
    """Batches, gaps and the start. `next_offset` is the first offset that was neither fetched nor loaded."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.next_offset = start
        self.delivered = 0
        self.deadlines = LockDeadlines()
        self._batches: list[InFlightBatch] = []
        #: the last offset of each batch
        self._lasts: list[int] = []
        #: first and last offset of each gap
        self._gaps: list[tuple[int, int]] = []
        #: no offset before this one can be acquired
        self._available_from = start

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._batches)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last offset of each gap that is not fetched yet."""
        return list(self._gaps)

    @property
    def locked_span(self) -> int:
        """The number of offsets that count for the limit of record locks: all from the start on, as in Apache Kafka."""
        return self.next_offset - self.start if self._batches else 0

    def owner_ids(self) -> set[int]:
        """Return the numbers of the owners of all offsets in flight."""
        found: set[int] = set()
        for batch in self._batches:
            found |= batch.owner_ids()
        return found

    # -- finding ------------------------------------------------------------------------------------------------------

    def at_or_after(self, offset: int) -> InFlightBatch | None:
        """Return the batch that contains the offset; else the first after it, or None."""
        place = bisect_left(self._lasts, offset)
        return self._batches[place] if place < len(self._batches) else None

    def ending_at(self, last: int) -> InFlightBatch | None:
        """Return the batch with this last offset, or None."""
        found = self.at_or_after(last)
        return found if found is not None and found.last == last else None

    def begins_before(self, offset: int) -> bool:
        """Return True if a batch begins at or before the offset."""
        return bool(self._batches) and self._batches[0].first <= offset

    def next_fetch_offset(self) -> int:
        """Return the offset to fetch from: the first that is available or in a gap, else the one after all."""
        gap = self._gaps[0][0] if self._gaps else self.next_offset
        at = max(self._available_from, self.start)
        while at < gap and (batch := self.at_or_after(at)) is not None:
            found = batch.next_available(max(at, batch.first))
            if found is not None:
                at = found
                break
            at = batch.last + 1
        self._available_from = min(at, self.next_offset)
        return min(self._available_from, gap)

    def pieces(self, first: int, last: int) -> Iterator[InFlightBatch | tuple[int, int]]:
        """Return the batches and the gaps between two offsets in their order; a gap is clipped to these. The caller may
        divide or fill the piece that it has got before it asks for the next."""
        at = first
        while at <= last:
            batch = self.at_or_after(at)
            place = self._gap_place(at)
            gap = self._gaps[place] if place < len(self._gaps) else None
            if gap is not None and gap[0] <= last and (batch is None or gap[0] < batch.first):
                end = min(gap[1], last)
                yield max(gap[0], at), end
                at = end + 1
            elif batch is not None and batch.first <= last:
                yield batch
                at = batch.last + 1
            else:
                return

    def _gap_place(self, offset: int) -> int:
        """Return the place of the first gap that ends at or after the offset."""
        return bisect_left(self._gaps, offset, key=lambda gap: gap[1])

    # -- the set of batches -------------------------------------------------------------------------------------------

    def add(self, batch: InFlightBatch) -> None:
        """Put a batch into the window: after all others, into a gap, or between."""
        place = bisect_left(self._lasts, batch.first)
        assert place == len(self._batches) or batch.last < self._batches[place].first
        self._batches.insert(place, batch)
        self._lasts.insert(place, batch.last)
        self.delivered += batch.delivered(batch.first, batch.last)
        self.close_gaps(batch.first, batch.last)
        self.next_offset = max(self.next_offset, batch.last + 1)
        if place == 0 and not (self._gaps and self._gaps[0][0] < batch.first):
            # The log has nothing between the start and the first batch that it returned.
            self.start = max(self.start, batch.first)

    def add_gap(self, first: int, last: int) -> None:
        """Note a gap of a loaded state. It comes after all others."""
        assert not self._gaps or self._gaps[-1][1] < first
        self._gaps.append((first, last))

    def close_gaps(self, first: int, last: int) -> None:
        """Note that the log has no records from `first` to `last`, or that they are in a batch."""
        start = self._gap_place(first)
        stop = start
        kept: list[tuple[int, int]] = []
        while stop < len(self._gaps) and self._gaps[stop][0] <= last:
            a, b = self._gaps[stop]
            if a < first:
                kept.append((a, first - 1))
            if b > last:
                kept.append((last + 1, b))
            stop += 1
        self._gaps[start:stop] = kept

    def track(self, batch: InFlightBatch, offset: int) -> InFlightBatch:
        """Give the offsets of a batch a state each, and return the batch that has the offset. A batch with more than
        MOST_TRACKED offsets is divided first, so that one changed offset does not make arrays without bound."""
        if batch.is_tracked:
            return batch
        if batch.last - batch.first >= MOST_TRACKED:
            if (first := offset - offset % MOST_TRACKED) > batch.first:
                batch = self._divide(batch, first)
            if (after := offset - offset % MOST_TRACKED + MOST_TRACKED) <= batch.last:
                self._divide(batch, after)
        batch.track()
        return batch

    def _divide(self, batch: InFlightBatch, at: int) -> InFlightBatch:
        place = bisect_left(self._lasts, batch.last)
        rest = batch.split(at)
        self._batches.insert(place + 1, rest)
        self._lasts[place : place + 1] = (batch.last, rest.last)
        for part in (batch, rest):
            if part.deadline_ms != NEVER:
                self.deadlines.add(part, part.deadline_ms)
        return rest

    # -- changes of states --------------------------------------------------------------------------------------------

    def change(self, batch: InFlightBatch, first: int, last: int, before: int, after: int) -> None:
        """Change the state of offsets in one batch (`InFlightBatch.change`), and count them."""
        batch.change(first, last, before, after)
        self.delivered += (last - first + 1) * ((after in DELIVERED) - (before in DELIVERED))

    def lock(self, batch: InFlightBatch, first: int, last: int, owner: int, deadline_ms: int) -> None:
        """Acquire offsets of one batch."""
        batch.lock(first, last, owner, deadline_ms)
        self.deadlines.add(batch, deadline_ms)

    def note_available(self, offset: int) -> None:
        """Note that an offset may have become available."""
        if offset < self._available_from:
            self._available_from = offset

    def mark_pending(self, batch: InFlightBatch, first: int, last: int, state: int) -> None:
        """Begin a change that is written to the share coordinator."""
        self.change(batch, first, last, ACQUIRED, state | PENDING)

    # -- the start ----------------------------------------------------------------------------------------------------

    def advance_start(self) -> bool:
        """Move the start over the offsets that are acknowledged or archived for good. Return True if it has moved."""
        was = self.start
        gap = self._gaps[0][0] if self._gaps else self.next_offset
        at = self.start
        whole = 0
        for batch in self._batches:
            if batch.first > gap:
                break
            final = batch.final_before()
            if final <= batch.last:
                at = max(at, final, batch.first)
                break
            at = batch.last + 1
            whole += 1
        if whole and whole == len(self._batches) and not self._gaps:
            at = self.next_offset
        elif whole < len(self._batches) and (self._batches[whole].first > at):
            # A hole that has no records, or the beginning of a gap.
            at = min(self._batches[whole].first, max(at, gap)) if self._gaps else self._batches[whole].first
        self._drop_before(at)
        return self.start != was

    def move_start(self, log_start: int) -> None:
        """Forget everything before the new start of the log."""
        if log_start <= self.start:
            return
        self.close_gaps(self.start, log_start - 1)
        self.next_offset = max(self.next_offset, log_start)
        self._drop_before(log_start)

    def _drop_before(self, start: int) -> None:
        whole = bisect_left(self._lasts, start)
        for batch in self._batches[:whole]:
            self.delivered -= batch.delivered(batch.first, batch.last)
        del self._batches[:whole], self._lasts[:whole]
        if self._batches and self._batches[0].first < start:
            self.delivered -= self._batches[0].delivered(self._batches[0].first, start - 1)
            self._batches[0].drop_before(start)
        self.start = start
        self.deadlines.drop_stale(self._batches, len(self._batches))
