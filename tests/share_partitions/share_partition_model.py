"""The specification of a share partition, written for one offset after another in plain dicts.

It follows Apache Kafka 4.4 (SharePartition): what is acquired, refused, rolled back, archived and persisted. It differs
where the head of `share_partition.py` says so. Nothing here is fast, and nothing is shared with the machine but names
of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pykbroker.share_partitions.acquisition import Acquire, AcquiredRange
from pykbroker.share_partitions.delivery_states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DeliveryRange,
    ShareLimits,
)
from pykbroker_wire.errors import ErrorCode

TICK_MS = 50
TERMINAL = (ACKNOWLEDGED, ARCHIVED)
STATE_OF = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}


class Acknowledged(NamedTuple):
    """A range of an acknowledgement, as in the request."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


@dataclass
class Offset:
    """One offset in flight. `batch` is the first offset and the size of the batch that it came with."""

    batch: tuple[int, int]
    state: int = AVAILABLE
    count: int = 0
    owner: str | None = None
    deadline_ms: int = 0
    is_pending: bool = False

    @property
    def is_available(self) -> bool:
        return self.state == AVAILABLE and not self.is_pending

    def unlock(self, state: int) -> None:
        self.state = state
        self.owner = None
        self.is_pending = False


class Written(NamedTuple):
    """The contents of a write, offset by offset."""

    start: int
    delivered: int
    states: dict[int, tuple[int, int]]


#: offsets that become dead letters: the delivery count, and True if a member has rejected the record
Dead = dict[int, tuple[int, bool]]


class SharePartitionModel:
    def __init__(self, start: int, ranges: Iterable[DeliveryRange] = ()) -> None:
        self.start = start
        self.next = start
        self.offsets: dict[int, Offset] = {}
        self.gaps: set[int] = set()
        #: what has become ARCHIVING in the last call
        self.dead: Dead = {}
        #: the offsets whose change to ARCHIVING waits for its write, and those of them that were rejected
        self._rejected: set[int] = set()
        for first, last, state, count in ranges:
            self.gaps |= set(range(self.next, first))
            for offset in range(first, last + 1):
                self.offsets[offset] = Offset((first, last - first + 1), state, count)
            self.next = last + 1
        self._settle()

    # -- what can be seen ---------------------------------------------------------------------------------------------

    @property
    def next_fetch_offset(self) -> int:
        wanted = [at for at, each in self.offsets.items() if each.is_available]
        return min([*wanted, *self.gaps, self.next])

    @property
    def delivered(self) -> int:
        return sum(each.state in TERMINAL for each in self.offsets.values())

    @property
    def in_flight(self) -> int:
        return self.next - self.start if self.offsets else 0

    def can_acquire(self, limits: ShareLimits) -> bool:
        return self.next_fetch_offset < self.next or self.in_flight < limits.record_locks

    def unfinished(self, limits: ShareLimits) -> Dead:
        """The reason is not stored. It follows from the count."""
        return {
            at: (each.count, each.count < limits.delivery_count)
            for at, each in self.offsets.items()
            if each.state == ARCHIVING and not each.is_pending
        }

    def held(self, member: str) -> list[int]:
        return sorted(at for at, each in self.offsets.items() if each.owner == member)

    def _settle(self) -> None:
        """The start passes what is done, and what the log does not have."""
        while self.start < self.next:
            each = self.offsets.get(self.start)
            if self.start in self.gaps or (each is not None and (each.is_pending or each.state not in TERMINAL)):
                break
            self.offsets.pop(self.start, None)
            self.start += 1

    # -- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(self, ask: Acquire, limits: ShareLimits, now_ms: int) -> list[AcquiredRange]:
        if ask.most_records <= 0 or not ask.fetched or ask.fetched[-1][1] < self.start:
            return []
        base, last = ask.fetched[0][0], ask.fetched[-1][1]
        for at in range(max(ask.fetch_offset, self.start), base):
            self.gaps.discard(at)
            if at in self.offsets and self.offsets[at].is_available:
                self.offsets[at].unlock(ARCHIVED)
        most = min(ask.most_records, limits.record_locks - self.in_flight)
        if most <= 0:
            most = min(ask.most_records, self.next - ask.fetch_offset)
            last = min(last, self.next - 1)
        found: list[AcquiredRange] = []
        if most > 0:
            self._acquire_between(max(base, self.start), last, most, ask, limits, found)
        for first, end, _ in found:
            for at in range(first, end + 1):
                each = self.offsets[at]
                each.owner = ask.member
                each.deadline_ms = -(-(now_ms + limits.lock_duration_ms) // TICK_MS) * TICK_MS
        kept = self._without_aborted(found, ask.aborted)
        self._settle()
        return kept

    def _acquire_between(
        self, first: int, last: int, most: int, ask: Acquire, limits: ShareLimits, found: list[AcquiredRange]
    ) -> None:
        throttled_from = max(2, -(-limits.delivery_count // 2))
        taken = 0
        at = first
        after = self.next
        while at <= last and taken < most:
            if at >= after:
                self._acquire_new(at, last, most - taken, ask, found)
                return
            if at in self.offsets:
                batch = self.offsets[at].batch
                members = [
                    offset
                    for offset in range(at, last + 1)
                    if offset in self.offsets and self.offsets[offset].batch == batch
                ]
                ready = [offset for offset in members if self.offsets[offset].is_available]
                throttled = any(self.offsets[offset].count >= throttled_from for offset in ready)
                if throttled and taken:
                    return
                got = self._acquire_again(ready, batch[1], most - taken, ask, limits, found)
                taken += got
                if throttled and got:
                    return
                at = members[-1] + 1
            elif at in self.gaps:
                end = at
                while end + 1 in self.gaps and end + 1 <= last:
                    end += 1
                taken += self._acquire_new(at, end, most - taken, ask, found)
                at = end + 1
            else:
                at += 1

    def _acquire_again(
        self, ready: list[int], span: int, most: int, ask: Acquire, limits: ShareLimits, found: list[AcquiredRange]
    ) -> int:
        throttled_from = max(2, -(-limits.delivery_count // 2))
        throttle = None
        taken: list[int] = []
        for at in ready:
            each = self.offsets[at]
            if limits.delivery_count > 2 and each.count == limits.delivery_count - 1 and taken:
                break
            if each.count >= throttled_from and each.count != limits.delivery_count - 1 and throttle is None:
                throttle = max(1, span >> (each.count - throttled_from + 1))
            if throttle is not None and len(taken) >= throttle:
                break
            each.state = ACQUIRED
            each.count += 1
            taken.append(at)
            if limits.delivery_count > 2 and each.count == limits.delivery_count:
                break
            if ask.limits_records and len(taken) == most:
                break
        mine: list[AcquiredRange] = []
        for at in taken:
            count = self.offsets[at].count
            if mine and mine[-1].last == at - 1 and mine[-1].delivery_count == count:
                mine[-1] = AcquiredRange(mine[-1].first, at, count)
            else:
                mine.append(AcquiredRange(at, at, count))
        found += mine
        return len(taken)

    def _acquire_new(self, first: int, last: int, most: int, ask: Acquire, found: list[AcquiredRange]) -> int:
        if last - first + 1 > most:
            wanted = first + most - 1
            last = min(last, next((end for base, end in ask.fetched if base <= wanted <= end), wanted))
        cuts = [first]
        if not ask.limits_records and last - first + 1 > ask.batch_size:
            cuts += [
                base
                for number, (base, _) in enumerate(ask.fetched)
                if first < base <= last and self._is_cut(first, ask, number)
            ]
        for cut, after in zip(cuts, [*cuts[1:], last + 1], strict=True):
            for at in range(cut, after):
                self.offsets[at] = Offset((cut, after - cut))
                self.gaps.discard(at)
        if min(self.offsets) >= first and not any(at < first for at in self.gaps):
            self.start = max(self.start, first)
        self.next = max(self.next, last + 1)
        for cut, after in zip(cuts, [*cuts[1:], last + 1], strict=True):
            end = min(after - 1, first + most - 1) if ask.limits_records else after - 1
            for at in range(cut, end + 1):
                self.offsets[at].state = ACQUIRED
                self.offsets[at].count = 1
            found.append(AcquiredRange(cut, end, 1))
        return min(last - first + 1, most) if ask.limits_records else last - first + 1

    @staticmethod
    def _is_cut(first: int, ask: Acquire, number: int) -> bool:
        """Return True if a new batch in flight begins with a fetched batch: the one before has its size."""
        since = first
        for base, _ in ask.fetched[: number + 1]:
            if base > since and base - since >= ask.batch_size:
                since = base
        return since == ask.fetched[number][0]

    def _without_aborted(self, found: list[AcquiredRange], aborted: Sequence[tuple[int, int]]) -> list[AcquiredRange]:
        kept: list[AcquiredRange] = []
        for first, last, count in found:
            since = first
            for at in range(first, last + 1):
                if any(a <= at <= b for a, b in aborted):
                    self.offsets[at].unlock(ARCHIVED)
                    if since < at:
                        kept.append(AcquiredRange(since, at - 1, count))
                    since = at + 1
            if since <= last:
                kept.append(AcquiredRange(since, last, count))
        return kept

    def give_back(self, member: str, acquired: Sequence[AcquiredRange]) -> None:
        for first, last, count in acquired:
            for at in range(first, last + 1):
                each = self.offsets.get(at)
                if each is not None and (each.owner, each.count) == (member, count) and not each.is_pending:
                    each.unlock(AVAILABLE)
                    each.count -= 1

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, acknowledged: Sequence[Acknowledged], limits: ShareLimits, now_ms: int, is_renewal: bool
    ) -> ErrorCode | Written | None:
        self.dead = {}
        before = -1
        for first, last, types in acknowledged:
            wrong_size = len(types) > 1 and len(types) != last - first + 1
            unknown = any(not 0 <= kind <= (4 if is_renewal else 3) for kind in types)
            if first > last or first < before or not types or wrong_size or unknown:
                return ErrorCode.INVALID_REQUEST
            before = last
        states: dict[int, tuple[int, int]] = {}
        for first, last, types in acknowledged:
            error = self._acknowledge_range(member, (first, last, types), limits, now_ms, states)
            if error is not None:
                self.persisted(states, False, limits, now_ms)
                return error
        return Written(self.start, self.delivered, states) if states else None

    def _acknowledge_range(
        self,
        member: str,
        acknowledged: tuple[int, int, Sequence[int]],
        limits: ShareLimits,
        now_ms: int,
        states: dict[int, tuple[int, int]],
    ) -> ErrorCode | None:
        begin, last, types = acknowledged
        if last < self.start:
            return None
        first = max(begin, self.start)
        if not self.offsets or min(self.offsets) > first:
            return ErrorCode.INVALID_RECORD_STATE
        if last not in self.offsets:
            return ErrorCode.INVALID_REQUEST
        # The part of a run of one type that is in one batch is refused as a whole. Apache Kafka refuses from the bad
        # offset on. The difference shows in renewals of a refused request only.
        runs: dict[tuple[int, tuple[int, int]], list[int]] = {}
        number, before = 0, None
        for at in range(first, last + 1):
            kind = types[at - begin] if len(types) > 1 else types[0]
            number, before = number + (kind != before), kind
            if at in self.offsets:
                runs.setdefault((number, self.offsets[at].batch), []).append(at)
        for run in runs.values():
            kind = types[run[0] - begin] if len(types) > 1 else types[0]
            members = [self.offsets[at] for at in run]
            if any(each.state != ACQUIRED or each.is_pending or each.owner != member for each in members):
                return ErrorCode.INVALID_RECORD_STATE
            if kind == 4 and not limits.allows_renewal:
                return ErrorCode.INVALID_RECORD_STATE
            for at in run:
                if kind == 4:
                    self.offsets[at].deadline_ms = -(-(now_ms + limits.lock_duration_ms) // TICK_MS) * TICK_MS
                else:
                    self._pend(at, kind, limits, states)
        return None

    def _pend(self, at: int, kind: int, limits: ShareLimits, states: dict[int, tuple[int, int]]) -> None:
        each = self.offsets[at]
        each.state = STATE_OF[kind]
        if kind == 3 and limits.dead_letters:
            each.state = ARCHIVING
            self._rejected.add(at)
        elif kind == 2:
            self._rejected.discard(at)
            each.state = self._released(each, limits)
        each.is_pending = True
        states[at] = (each.state, each.count)

    @staticmethod
    def _released(each: Offset, limits: ShareLimits) -> int:
        if each.count < limits.delivery_count:
            return AVAILABLE
        return ARCHIVING if limits.dead_letters else ARCHIVED

    def release(self, member: str, limits: ShareLimits, now_ms: int) -> Written | None:
        states: dict[int, tuple[int, int]] = {}
        for at in self.held(member):
            if not self.offsets[at].is_pending:
                self._pend(at, 2, limits, states)
            self.offsets[at].deadline_ms = now_ms
        return Written(self.start, self.delivered, states) if states else None

    def persisted(self, states: dict[int, tuple[int, int]], is_written: bool, limits: ShareLimits, now_ms: int) -> None:
        self.dead = {}
        for at, (state, count) in states.items():
            if is_written and state == ARCHIVING:
                # Also if the start of the log has passed it.
                self.dead[at] = (count, at in self._rejected)
            each = self.offsets.get(at)
            if each is None:
                continue  # the start of the log has passed it
            if is_written:
                each.unlock(each.state)
            elif each.deadline_ms > now_ms:
                each.state = ACQUIRED
                each.is_pending = False
            else:
                each.unlock(self._released(each, limits))
                if each.state == ARCHIVING:
                    self.dead[at] = (each.count, False)
        self._settle()

    def archive(self, offsets: Iterable[int]) -> Written | None:
        """Letters are written. The write has the start from before."""
        states: dict[int, tuple[int, int]] = {}
        for at in offsets:
            each = self.offsets.get(at)
            if each is not None:
                each.state = ARCHIVED
                states[at] = (ARCHIVED, each.count)
        written = Written(self.start, self.delivered, states) if states else None
        self._settle()
        return written

    def expire(self, limits: ShareLimits, now_ms: int) -> dict[int, tuple[int, int]]:
        self.dead = {}
        states = {}
        for at, each in self.offsets.items():
            if each.state == ACQUIRED and not each.is_pending and each.deadline_ms <= now_ms:
                each.unlock(self._released(each, limits))
                states[at] = (each.state, each.count)
                if each.state == ARCHIVING:
                    self.dead[at] = (each.count, False)
        self._settle()
        return states

    def move_start(self, log_start: int) -> None:
        if log_start > self.start:
            self.offsets = {at: each for at, each in self.offsets.items() if at >= log_start}
            self.gaps = {at for at in self.gaps if at >= log_start}
            self.start = log_start
            self.next = max(self.next, log_start)
            self._settle()
