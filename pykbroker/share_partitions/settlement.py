"""The settlement of acquired records: changes that wait for their write, locks that have ended, and dead letters.

Responsible for the states that records get when they leave ACQUIRED, and for the end of a change after its write. Not
responsible for who may begin one (share_partition.py).

Invariant: a record is reported as dead (`DeadRange`) exactly once for each time that it becomes ARCHIVING, and only
then. So the leader can have each letter written, and archive the record after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykbroker.share_partitions.acknowledged_ranges import PER_TURN
from pykbroker.share_partitions.delivery_states import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    PENDING,
    REJECT,
    RELEASE,
    DeadRange,
    DeliveryRange,
    ShareLimits,
    add_dead,
    state_after_release,
    state_asked_for,
)
from pykbroker.share_partitions.in_flight import InFlightWindow
from pykbroker.share_partitions.offset_runs import InFlightBatch
from pykbroker.share_partitions.state_changes import DeliveryWrite, StateChange


class Settlement:
    """The states of the records of one window after ACQUIRED."""

    def __init__(self, window: InFlightWindow) -> None:
        self._window = window

    def fill(self, write: DeliveryWrite) -> None:
        """Give a write the start and the count of the window as they are now."""
        write.start = self._window.start
        write.delivered = self._window.delivered

    # -- changes that wait for their write ----------------------------------------------------------------------------

    def mark_pending(
        self, write: DeliveryWrite, batch: InFlightBatch, offsets: tuple[int, int], kind: int, limits: ShareLimits
    ) -> None:
        """Begin the change of acquired offsets of one batch that an acknowledgement type asks for (not RENEW)."""
        window = self._window
        state = state_asked_for(kind, limits)
        if kind != RELEASE:
            window.mark_pending(batch, *offsets, state)
        for first, last, count in batch.counts(*offsets):
            if kind == RELEASE:
                state = state_after_release(count, limits)
                window.mark_pending(batch, first, last, state)
            write.add(first, last, state, count)
            if state == ARCHIVING:
                add_dead(write.dead, DeadRange(first, last, count, kind == REJECT))

    def end(
        self, change: StateChange, write: DeliveryWrite, is_written: bool, limits: ShareLimits, now_ms: int
    ) -> Iterator[None]:
        """Take the bit PENDING from the records of a write. It gives way after each part."""
        window = self._window
        parts = 0
        for each in write.ranges:
            at = max(each.first, window.start)
            while at <= each.last and (batch := window.at_or_after(at)) is not None:
                at = max(at, batch.first)
                end = min(each.last, batch.last)
                if at <= end:
                    if is_written:
                        window.change(batch, at, end, each.state | PENDING, each.state)
                        if each.state == AVAILABLE:
                            window.note_available(at)
                            change.frees = True
                    else:
                        self._roll_back(change, batch, (at, end, each.state | PENDING), limits, now_ms)
                at = end + 1
                parts += 1
                if parts % PER_TURN == 0:
                    yield
                    at = max(at, window.start)
        if is_written:
            change.dead += write.dead
        change.frees |= window.advance_start()

    def _roll_back(
        self, change: StateChange, batch: InFlightBatch, pending: tuple[int, int, int], limits: ShareLimits, now_ms: int
    ) -> None:
        first, last, state = pending
        window = self._window
        window.change(batch, first, last, state, ACQUIRED)
        for a, b, deadline_ms in batch.deadlines(first, last):
            if deadline_ms > now_ms:
                window.deadlines.add(batch, deadline_ms)
            else:
                self.unlock(batch, a, b, limits, change.dead)
                change.frees = True

    # -- locks that have ended ----------------------------------------------------------------------------------------

    def unlock(
        self, batch: InFlightBatch, first: int, last: int, limits: ShareLimits, dead: list[DeadRange]
    ) -> list[DeliveryRange]:
        """End locks at once. The records are available again, or not at the delivery limit. Records that are
        ARCHIVING now are added to `dead`."""
        found = []
        for a, b, count in batch.counts(first, last):
            state = state_after_release(count, limits)
            self._window.change(batch, a, b, ACQUIRED, state)
            if state == AVAILABLE:
                self._window.note_available(a)
            elif state == ARCHIVING:
                add_dead(dead, DeadRange(a, b, count, False))
            found.append(DeliveryRange(a, b, state, count))
        return found

    # -- dead letters -------------------------------------------------------------------------------------------------

    def unfinished(self, limits: ShareLimits) -> list[DeadRange]:
        """Return the records that are ARCHIVING in a state that was just loaded. As in Apache Kafka the reason, which
        is not stored, follows from the delivery count."""
        found: list[DeadRange] = []
        for batch in self._window:
            for first, last in batch.runs_of(ARCHIVING, batch.first, batch.last):
                for a, b, count in batch.counts(first, last):
                    add_dead(found, DeadRange(a, b, count, count < limits.delivery_count))
        return found

    def archive(self, change: StateChange, ranges: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Archive records that are ARCHIVING. It gives way after each part. The write has the start from before, as the
        write of an acknowledgement has it."""
        window = self._window
        write = DeliveryWrite(is_awaited=False)
        parts = 0
        for first, last in ranges:
            at = max(first, window.start)
            while at <= last and (batch := window.at_or_after(at)) is not None:
                for a, b in batch.runs_of(ARCHIVING, max(at, batch.first), min(last, batch.last)):
                    for c, d, count in list(batch.counts(a, b)):
                        window.change(batch, c, d, ARCHIVING, ARCHIVED)
                        write.add(c, d, ARCHIVED, count)
                        parts += 1
                at = batch.last + 1
                if parts >= PER_TURN:
                    parts = 0
                    yield
                    at = max(at, window.start)
        if write.ranges:
            self.fill(write)
            change.write = write
        change.frees |= window.advance_start()
