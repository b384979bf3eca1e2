"""A share partition: which record is available, locked by which member, or done, for one group and one partition.

This is the leader's state of KIP-932 as a machine (Apache Kafka: SharePartition). Fetched batches, acknowledgements
and the time go in; acquired ranges, errors and writes for the share coordinator come out. It reads no log, sends
nothing and knows no clock.

The leader drives it so:

1. `SharePartition.load` takes what the persister has read.
2. A fetch reads the log from `next_fetch_offset` and calls `acquire`; only one fetch at a time (`can_acquire`).
3. `acknowledge` and `release` return a `StateChange`. When it is whole, its write goes to the share coordinator, and
   the outcome to `persisted`. The client is answered after that.
4. At `next_expiry_ms` it calls `expire`, and sends the write without waiting for its outcome.
5. It has the letters of dead records written, which a change, a write of `expire` or a load has returned. Then it calls
   `archive`, and sends its write.

Invariants: a record has at most one owner. While a write about a record is out, the record can be neither acknowledged
nor acquired. A delivery count rises with each acquisition, and falls only when a record was acquired and never sent
(`give_back`). The start passes acknowledged and archived records, offsets that the log does not have, and nothing else.
All or nothing of an acknowledgement is kept, except that renewals are not undone. A record that is ARCHIVING can be
neither acquired nor acknowledged, holds the start, and becomes archived by `archive` only.

Three things are better than in Apache Kafka 4.4. A release whose write fails still takes effect, so no record stays
locked for a session that has ended. A gap of a loaded state that compaction has emptied does not hold the start for
ever. A record at the delivery limit whose lock has ended while the write of its change failed gets its dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pykbroker.share_partitions.acknowledged_ranges import (
    PER_TURN,
    AcknowledgedRange,
    is_well_formed,
    looks_at,
    runs_of_types,
)
from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange, Acquisition
from pykbroker.share_partitions.delivery_states import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    MOST_DELIVERIES,
    RELEASE,
    RENEW,
    DeadRange,
    DeliveryRange,
    ShareLimits,
)
from pykbroker.share_partitions.in_flight import InFlightWindow
from pykbroker.share_partitions.lock_deadlines import deadline_of
from pykbroker.share_partitions.lock_owners import LockOwners
from pykbroker.share_partitions.offset_runs import NEVER, NOBODY, InFlightBatch
from pykbroker.share_partitions.settlement import Settlement
from pykbroker.share_partitions.state_changes import DeliveryWrite, StateChange
from pykbroker_wire.errors import ErrorCode

#: The most batches whose locks one call of `expire` looks at.
EXPIRED_PER_TURN: Final = 256


class UnusableState(ValueError):
    """The share coordinator has returned a state that no share partition can have."""


class SharePartition:
    """The records of one partition, for one share group, on the leader of the partition."""

    def __init__(self, start: int) -> None:
        self._window = InFlightWindow(start)
        self._owners = LockOwners()
        self._settlement = Settlement(self._window)

    @classmethod
    def load(cls, start: int, ranges: Sequence[DeliveryRange]) -> SharePartition:
        """Return the share partition that the persister has read.

        `start` is its start offset; the caller has resolved -1 by share.auto.offset.reset. `ranges` are its state
        batches, ascending. Offsets between them were locked, or not reached, at the last write. They are fetched again.

        Raises:
            UnusableState: a range begins before the start or before the end of the one before it, ends before it
                begins, or has an unknown state or a negative count.
        """
        partition = cls(start)
        window = partition._window
        after = start
        for first, last, state, count in ranges:
            is_known = AVAILABLE <= state <= ARCHIVED and 0 <= count <= MOST_DELIVERIES
            if not is_known or not after <= first <= last:
                raise UnusableState(f"offsets {first} to {last} from {after} on: state {state}, {count} deliveries")
            if first > after:
                window.add_gap(after, first - 1)
            # A lock is never stored. A record that is stored as acquired has none here.
            window.add(InFlightBatch(first, last, AVAILABLE if state == ACQUIRED else state, count))
            after = last + 1
        window.advance_start()
        return partition

    # -- what is to be known ------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The share-partition start offset (SPSO): all records before it are done."""
        return self._window.start

    @property
    def end_offset(self) -> int:
        """The last offset in flight. As in Apache Kafka it is the start offset if nothing is."""
        window = self._window
        return window.next_offset - 1 if len(window) else window.start

    @property
    def next_fetch_offset(self) -> int:
        """The offset from which the log is to be read: the first available record, else the one after the end."""
        return self._window.next_fetch_offset()

    @property
    def delivery_complete_count(self) -> int:
        """The number of records in flight that are acknowledged or archived; those whose write is out count."""
        return self._window.delivered

    @property
    def in_flight_count(self) -> int:
        """The number of offsets that count for share.partition.max.record.locks: all from the start to the end."""
        return self._window.locked_span

    @property
    def batch_count(self) -> int:
        """The number of batches in flight."""
        return len(self._window)

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Return True if a fetch may acquire records: below the limit of locks, or what was released before the end."""
        window = self._window
        return window.next_fetch_offset() < window.next_offset or window.locked_span < limits.record_locks

    def ranges(self) -> Iterator[DeliveryRange]:
        """Return what is in flight, for inspection. A state whose write is out shows as the one to come."""
        for batch in self._window:
            yield from batch.ranges()

    def locks(self) -> Iterator[tuple[int, int, str, int]]:
        """Return the locks, for inspection: first and last offset, the member, and the time in ms when they end."""
        for batch in self._window:
            for number in sorted(batch.owner_ids() - {NOBODY}):
                member = self._owners.member(number)
                assert member is not None
                for first, last in batch.owned_runs(number):
                    for a, b, deadline_ms in batch.deadlines(first, last):
                        yield a, b, member, deadline_ms

    # -- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        ask: Acquire,
        limits: ShareLimits,
        now_ms: int,
        note_batch: Callable[[int], object] = lambda size: None,
    ) -> list[AcquiredRange]:
        """Lock records of fetched batches for a member, and return them. Records between the ranges go to the client
        too, which filters them. `note_batch` is called with the number of offsets of each batch that comes into
        flight."""
        owner = self._owners.add(ask.member, self._window.owner_ids)
        return Acquisition(self._window, ask, owner, limits, now_ms, note_batch).run()

    def give_back(self, member: str, acquired: Sequence[AcquiredRange]) -> None:
        """Undo an acquisition whose records were never sent. They are available with the count that they had before.
        Records that the member no longer holds stay as they are, and so do those that it has acquired again since, with
        a higher count."""
        owner = self._owners.number_of(member)
        window = self._window
        for first, last, count in acquired:
            for piece in window.pieces(max(first, window.start), last):
                if not isinstance(piece, InFlightBatch) or owner == NOBODY:
                    continue
                a, b = max(first, piece.first), min(last, piece.last)
                batch = piece if (a, b) == (piece.first, piece.last) else window.track(piece, a)
                for run_first, run_last in list(batch.owned_runs(owner)):
                    for c, d in batch.runs_of(ACQUIRED, max(run_first, a), min(run_last, b)):
                        for e, f, present in list(batch.counts(c, d)):
                            if present == count:
                                batch.give_back(e, f)
                                window.note_available(e)

    # -- acknowledging and releasing ----------------------------------------------------------------------------------

    def acknowledge(
        self,
        member: str,
        acknowledged: Sequence[AcknowledgedRange],
        limits: ShareLimits,
        now_ms: int,
        *,
        is_renewal: bool = False,
    ) -> StateChange:
        """Begin an acknowledgement. `is_renewal` is the flag IsRenewAck of the request.

        The change has no write if only locks were renewed, or if all offsets are before the start. Its error is
        INVALID_REQUEST for ranges that are malformed or go beyond what was acquired. It is INVALID_RECORD_STATE if an
        offset is not locked by this member, if a write about it is out, or if renewals are not allowed.
        """
        change = StateChange()
        return change.begin(self._acknowledge(change, member, acknowledged, limits, now_ms, is_renewal))

    def release(self, member: str, limits: ShareLimits, now_ms: int) -> StateChange:
        """Begin to release all locks of a member, because its session has ended. If a write about one of its records is
        out, and fails, that record is released too."""
        change = StateChange()
        return change.begin(self._release(change, self._owners.number_of(member), limits, now_ms))

    def persisted(self, write: DeliveryWrite, is_written: bool, limits: ShareLimits, now_ms: int) -> StateChange:
        """Begin to end the change that `write` belongs to. If it was not written, its records are locked as before, or
        available if their locks have ended meanwhile."""
        assert write.is_awaited
        write.is_awaited = False
        change = StateChange()
        return change.begin(self._settlement.end(change, write, is_written, limits, now_ms))

    def _acknowledge(
        self,
        change: StateChange,
        member: str,
        acknowledged: Sequence[AcknowledgedRange],
        limits: ShareLimits,
        now_ms: int,
        is_renewal: bool,
    ) -> Iterator[None]:
        after = -1
        parts = 0
        for each in acknowledged:
            if not is_well_formed(each, after, allows_renewal=is_renewal):
                change.error = ErrorCode.INVALID_REQUEST
                return
            after = each.last_offset
            parts += looks_at(each)
            if parts >= PER_TURN:
                parts = 0
                yield
        owner = self._owners.number_of(member)
        write = DeliveryWrite(is_awaited=True)
        deadline_ms = deadline_of(now_ms, limits.lock_duration_ms)
        parts = 0
        for each in acknowledged:
            for _ in self._acknowledge_range(change, write, owner, each, limits, deadline_ms):
                parts += 1
                if parts % PER_TURN == 0:
                    yield
            if change.error is not None:
                yield from self._settlement.end(change, write, False, limits, now_ms)
                return
        self._send(change, write)

    def _acknowledge_range(
        self,
        change: StateChange,
        write: DeliveryWrite,
        owner: int,
        acknowledged: AcknowledgedRange,
        limits: ShareLimits,
        deadline_ms: int,
    ) -> Iterator[None]:
        """Change what a range has, or set the error. It gives way after each part; a range before the start is one."""
        window = self._window
        change.error = self._out_of_reach(acknowledged.first_offset, acknowledged.last_offset)
        if change.error is not None or acknowledged.last_offset < window.start:
            yield
            return
        for first, last, kind in runs_of_types(acknowledged, window.start):
            at = first
            while at <= last and change.error is None:
                # The start may have moved since the part before.
                at = max(at, window.start)
                if at <= last:
                    at = self._acknowledge_part(change, write, owner, (at, last, kind), limits, deadline_ms)
                yield
            if change.error is not None:
                return

    def _out_of_reach(self, first: int, last: int) -> ErrorCode | None:
        """Return the error for a range that is not in flight as a whole."""
        window = self._window
        if last < window.start:
            return None
        if not window.begins_before(max(first, window.start)):
            return ErrorCode.INVALID_RECORD_STATE
        ending = window.at_or_after(last)
        return ErrorCode.INVALID_REQUEST if ending is None or ending.first > last else None

    def _acknowledge_part(
        self,
        change: StateChange,
        write: DeliveryWrite,
        owner: int,
        part: tuple[int, int, int],
        limits: ShareLimits,
        deadline_ms: int,
    ) -> int:
        """Change what one batch has of a range, and return the first offset after it, or set the error."""
        first, last, kind = part
        window = self._window
        batch = window.at_or_after(first)
        if batch is None or batch.first > first:
            # The log has nothing here.
            return last + 1 if batch is None else batch.first
        end = min(last, batch.last)
        is_allowed = owner != NOBODY and (kind != RENEW or limits.allows_renewal)
        if not (is_allowed and batch.is_all(ACQUIRED, first, end) and batch.is_owned(owner, first, end)):
            change.error = ErrorCode.INVALID_RECORD_STATE
            return first
        if not batch.is_tracked and (first, end) != (batch.first, batch.last):
            batch = window.track(batch, first)
            end = min(end, batch.last)
        if kind == RENEW:
            batch.set_deadline(first, end, deadline_ms)
            window.deadlines.add(batch, deadline_ms)
        else:
            self._settlement.mark_pending(write, batch, (first, end), kind, limits)
        return end + 1

    def _release(self, change: StateChange, owner: int, limits: ShareLimits, now_ms: int) -> Iterator[None]:
        write = DeliveryWrite(is_awaited=True)
        parts = 0
        at = self._window.start
        while owner != NOBODY and (batch := self._window.at_or_after(at)) is not None:
            for first, last in batch.owned_runs(owner):
                for a, b in batch.runs_of(ACQUIRED, first, last):
                    self._settlement.mark_pending(write, batch, (a, b), RELEASE, limits)
                    parts += 1
                # If a write fails, the lock of these records has ended.
                batch.set_deadline(first, last, now_ms)
            at = batch.last + 1
            parts += 1
            if parts >= PER_TURN:
                parts = 0
                yield
        self._send(change, write)

    def _send(self, change: StateChange, write: DeliveryWrite) -> None:
        if write.ranges:
            self._settlement.fill(write)
            change.write = write

    # -- dead letters -------------------------------------------------------------------------------------------------

    def unfinished_letters(self, limits: ShareLimits) -> list[DeadRange]:
        """Return the records of a loaded state whose dead letters were not written, or not for certain. The caller has
        them written, and then archived."""
        return self._settlement.unfinished(limits)

    def archive(self, ranges: Sequence[tuple[int, int]]) -> StateChange:
        """Begin to archive records whose dead letters are written or given up. `ranges` are first and last offsets,
        ascending, of records that were reported as dead. Offsets before the start are passed over. The write is a best
        effort, as in Apache Kafka: if it fails, the next start that is stored passes these records."""
        change = StateChange()
        return change.begin(self._settlement.archive(change, ranges))

    # -- time and the log ---------------------------------------------------------------------------------------------

    def next_expiry_ms(self) -> int | None:
        """Return the time at which `expire` has to be called, or None while there is no lock."""
        return self._window.deadlines.next_ms()

    def expire(self, limits: ShareLimits, now_ms: int) -> DeliveryWrite | None:
        """End the locks whose time has come, of at most EXPIRED_PER_TURN batches. If there are more, `next_expiry_ms`
        is not after `now_ms`. Return what to write as a best effort, or None if no lock has ended."""
        window = self._window
        write = DeliveryWrite(is_awaited=False)
        for _ in range(EXPIRED_PER_TURN):
            due = window.deadlines.pop_due(now_ms)
            if due is None:
                break
            batch = window.ending_at(due[1])
            if batch is None or batch.queued_ms != due[0]:
                continue
            batch.queued_ms = NEVER
            for first, last in batch.expired_runs(now_ms):
                for each in self._settlement.unlock(batch, first, last, limits, write.dead):
                    write.add(*each)
            earliest = batch.earliest_lock_ms()
            if earliest != NEVER:
                window.deadlines.add(batch, earliest)
        if not write.ranges:
            return None
        window.advance_start()
        self._settlement.fill(write)
        return write

    def move_start(self, log_start: int) -> None:
        """The log now begins at `log_start` (retention, DeleteRecords). Offsets before it are no longer in flight, and
        acknowledgements of it are ignored. The next write carries the new start."""
        self._window.move_start(log_start)
        self._window.advance_start()

    def start_write(self) -> DeliveryWrite:
        """Return a write of the start alone, as a best effort: for a start that a load has resolved from -1."""
        write = DeliveryWrite(is_awaited=False)
        self._settlement.fill(write)
        return write
