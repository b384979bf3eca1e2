"""One batch in flight: its state as a whole, or arrays with a state for each of its offsets.

A batch begins with one state for all its offsets, because most clients acknowledge what they acquired as a whole. The
first change of a part of it makes arrays: a byte for the state, two for the delivery count, four for the owner and
eight for the deadline of the lock. Offsets follow from the place in the array. Nothing here makes an object for each
record, and all loops over offsets are those of `bytearray`, `array`, `re` and `itertools`.

Invariants: an offset has an owner and a deadline if and only if it is ACQUIRED or PENDING. A batch with arrays has at
most MOST_TRACKED offsets: larger ones are divided first (`InFlightWindow.track`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from pykbroker.share_partitions.delivery_states import (
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    DELIVERED,
    MOST_DELIVERIES,
    PENDING,
    TERMINAL,
    TRANSITIONS,
    DeliveryRange,
)

#: no owner; ids of owners begin at 1
NOBODY: Final = 0
#: the deadline of an offset without a lock
NEVER: Final = 2**63 - 1
#: The most offsets with a state of their own in one batch. Arrays of this size take 1 MB.
MOST_TRACKED: Final = 65_536

_AVAILABLE_RUN: Final = re.compile(rb"\x00+")
_ACQUIRED_RUN: Final = re.compile(rb"\x01+")
_ARCHIVING_RUN: Final = re.compile(rb"\x03+")
_FINAL: Final = re.compile(rb"[\x02\x04]*")
_STATE_RUNS: Final = {AVAILABLE: _AVAILABLE_RUN, ACQUIRED: _ACQUIRED_RUN, ARCHIVING: _ARCHIVING_RUN}


def equal_runs(values: array[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Return start, stop and value of each run of equal values between two places."""
    if stop - start == 1:
        yield start, stop, values[start]
        return
    for value, group in groupby(values[start:stop]):
        end = start + len(list(group))
        yield start, end, value
        start = end


class InFlightBatch:
    """Offsets from `first` to `last`, which were fetched or loaded together.

    `span` is the number of offsets that it had first: throttled deliveries are fractions of it. `queued_ms` is the
    deadline under which `LockDeadlines` has the batch.
    """

    __slots__ = (
        "_counts",
        "_deadlines",
        "_owners",
        "_states",
        "count",
        "deadline_ms",
        "first",
        "last",
        "owner",
        "queued_ms",
        "span",
        "state",
    )

    def __init__(self, first: int, last: int, state: int, count: int) -> None:
        assert first <= last
        self.first = first
        self.last = last
        self.span = last - first + 1
        self.state = state
        self.count = count
        self.owner = NOBODY
        self.deadline_ms = NEVER
        self.queued_ms = NEVER
        self._states: bytearray | None = None
        self._counts: array[int]
        self._owners: array[int]
        self._deadlines: array[int]

    @property
    def is_tracked(self) -> bool:
        """Return True if each offset has a state of its own."""
        return self._states is not None

    def track(self) -> None:
        """Give each offset a state of its own."""
        if self._states is None:
            size = self.last - self.first + 1
            assert size <= MOST_TRACKED
            self._counts = array("H", (self.count,)) * size
            self._owners = array("I", (self.owner,)) * size
            self._deadlines = array("q", (self.deadline_ms,)) * size
            self._states = bytearray((self.state,)) * size

    def split(self, at: int) -> InFlightBatch:
        """Cut a batch without arrays before the offset `at`, and return the second part. Neither is queued."""
        assert self._states is None
        assert self.first < at <= self.last
        rest = InFlightBatch(at, self.last, self.state, self.count)
        rest.owner, rest.deadline_ms = self.owner, self.deadline_ms
        self.last = at - 1
        self.span = at - self.first
        self.queued_ms = NEVER
        return rest

    def drop_before(self, first: int) -> None:
        """Forget the offsets before `first`, which is in the batch."""
        assert self.first <= first <= self.last
        if self._states is not None:
            gone = first - self.first
            del self._states[:gone], self._counts[:gone], self._owners[:gone], self._deadlines[:gone]
        self.first = first

    # -- questions ----------------------------------------------------------------------------------------------------

    def is_all(self, state: int, first: int, last: int) -> bool:
        """Return True if every offset from `first` to `last` has this state byte."""
        if self._states is None:
            return self.state == state
        start = first - self.first
        if first == last:
            return self._states[start] == state
        size = last - first + 1
        return self._states.count(state, start, start + size) == size

    def is_owned(self, owner: int, first: int, last: int) -> bool:
        """Return True if every offset from `first` to `last` has this owner."""
        if self._states is None:
            return self.owner == owner
        start = first - self.first
        if first == last:
            return self._owners[start] == owner
        size = last - first + 1
        return self._owners[start : start + size].count(owner) == size

    def counts(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Return the runs of one delivery count, each as its first offset, its last and the count."""
        if self._states is None:
            yield first, last, self.count
        elif first == last:
            yield first, last, self._counts[first - self.first]
        else:
            base = self.first
            for start, stop, count in equal_runs(self._counts, first - base, last - base + 1):
                yield base + start, base + stop - 1, count

    def runs_of(self, state: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Return the runs of AVAILABLE, ACQUIRED or ARCHIVING offsets from `first` to `last`. The caller may change the
        run that it has got before it asks for the next."""
        if self._states is None:
            if self.state == state:
                yield first, last
            return
        base = self.first
        pattern = _STATE_RUNS[state]
        start = first - base
        while found := pattern.search(self._states, start, last - base + 1):
            start = found.end()
            yield base + found.start(), base + start - 1

    def next_available(self, first: int) -> int | None:
        """Return the first offset from `first` on that can be acquired."""
        if self._states is None:
            return first if self.state == AVAILABLE else None
        place = self._states.find(AVAILABLE, first - self.first)
        return None if place < 0 else self.first + place

    def most_deliveries(self, first: int, last: int) -> int:
        """Return the highest delivery count of the available offsets from `first` to `last`, or 0."""
        if self._states is None:
            return self.count if self.state == AVAILABLE else 0
        base = self.first
        return max(
            (max(self._counts[a - base : b - base + 1]) for a, b in self.runs_of(AVAILABLE, first, last)), default=0
        )

    def delivered(self, first: int, last: int) -> int:
        """Return how many of the offsets from `first` to `last` are acknowledged or archived, or about to be."""
        size = last - first + 1
        if self._states is None:
            return size if self.state in DELIVERED else 0
        start = first - self.first
        return sum(self._states.count(state, start, start + size) for state in DELIVERED)

    def final_before(self) -> int:
        """Return the first offset whose state is not final; the offset after the batch if all are."""
        if self._states is None:
            return self.last + 1 if self.state in TERMINAL else self.first
        found = _FINAL.match(self._states)
        assert found is not None
        return self.first + found.end()

    def owned_runs(self, owner: int) -> Iterator[tuple[int, int]]:
        """Return the runs of offsets that this owner holds; those whose write is out are among them."""
        if self._states is None:
            if self.owner == owner:
                yield self.first, self.last
        elif owner in self._owners:
            base = self.first
            for start, stop, found in equal_runs(self._owners, 0, len(self._owners)):
                if found == owner:
                    yield base + start, base + stop - 1

    def expired_runs(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Return the runs of acquired offsets whose deadline has come. The caller changes each before the next."""
        if self._states is None:
            if self.state == ACQUIRED and self.deadline_ms <= now_ms:
                yield self.first, self.last
            return
        base = self.first
        for first, last in self.runs_of(ACQUIRED, base, self.last):
            for start, stop, deadline_ms in equal_runs(self._deadlines, first - base, last - base + 1):
                if deadline_ms <= now_ms:
                    yield base + start, base + stop - 1

    def deadlines(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Return the runs of one deadline, each as its first offset, its last and the deadline."""
        if self._states is None:
            yield first, last, self.deadline_ms
        else:
            base = self.first
            for start, stop, deadline_ms in equal_runs(self._deadlines, first - base, last - base + 1):
                yield base + start, base + stop - 1, deadline_ms

    def earliest_lock_ms(self) -> int:
        """Return the earliest deadline of a lock that can expire, or NEVER."""
        if self._states is None:
            return self.deadline_ms if self.state == ACQUIRED else NEVER
        base = self.first
        return min(
            (min(self._deadlines[a - base : b - base + 1]) for a, b in self.runs_of(ACQUIRED, base, self.last)),
            default=NEVER,
        )

    def owner_ids(self) -> set[int]:
        """Return the owners of the offsets, NOBODY among them."""
        return {self.owner} if self._states is None else set(self._owners)

    def ranges(self) -> Iterator[DeliveryRange]:
        """Return the states of all offsets as ranges, for inspection. A pending state shows as the one to come."""
        if self._states is None:
            yield DeliveryRange(self.first, self.last, self.state & ~PENDING, self.count)
            return
        shown = array("H", (state & ~PENDING for state in self._states))
        for start, stop, state in equal_runs(shown, 0, len(shown)):
            for a, b, count in self.counts(self.first + start, self.first + stop - 1):
                yield DeliveryRange(a, b, state, count)

    # -- changes ------------------------------------------------------------------------------------------------------

    def change(self, first: int, last: int, before: int, after: int) -> None:
        """Give the offsets from `first` to `last`, which all have the byte `before`, the byte `after`. A lock ends with
        the states ACQUIRED and PENDING. Without arrays only the whole batch can be changed."""
        if (before, after) not in TRANSITIONS or not self.is_all(before, first, last):
            raise AssertionError(f"offsets {first} to {last} cannot go from state {before} to {after}")
        keeps_lock = after == ACQUIRED or after & PENDING
        if self._states is None:
            assert (first, last) == (self.first, self.last)
            self.state = after
            if not keeps_lock:
                self.owner, self.deadline_ms = NOBODY, NEVER
            return
        start = first - self.first
        if first == last:
            self._states[start] = after
            if not keeps_lock:
                self._owners[start] = NOBODY
                self._deadlines[start] = NEVER
            return
        size = last - first + 1
        self._states[start : start + size] = bytes((after,)) * size
        if not keeps_lock:
            self._owners[start : start + size] = array("I", (NOBODY,)) * size
            self._deadlines[start : start + size] = array("q", (NEVER,)) * size

    def lock(self, first: int, last: int, owner: int, deadline_ms: int) -> None:
        """Acquire available offsets for an owner until a deadline. Each delivery count rises by one."""
        self.change(first, last, AVAILABLE, ACQUIRED)
        if self._states is None:
            self.owner, self.deadline_ms = owner, deadline_ms
        else:
            start, size = first - self.first, last - first + 1
            self._owners[start : start + size] = array("I", (owner,)) * size
            self._deadlines[start : start + size] = array("q", (deadline_ms,)) * size
        self._add_deliveries(first, last, 1)

    def give_back(self, first: int, last: int) -> None:
        """Undo `lock`: the offsets are available again, and their delivery counts fall by one."""
        self.change(first, last, ACQUIRED, AVAILABLE)
        self._add_deliveries(first, last, -1)

    def set_deadline(self, first: int, last: int, deadline_ms: int) -> None:
        """Set another deadline for offsets that have a lock."""
        if self._states is None:
            assert (first, last) == (self.first, self.last)
            self.deadline_ms = deadline_ms
        elif first == last:
            self._deadlines[first - self.first] = deadline_ms
        else:
            start, size = first - self.first, last - first + 1
            self._deadlines[start : start + size] = array("q", (deadline_ms,)) * size

    def _add_deliveries(self, first: int, last: int, more: int) -> None:
        if self._states is None:
            self.count = min(self.count + more, MOST_DELIVERIES)
            return
        base = self.first
        for start, stop, count in list(equal_runs(self._counts, first - base, last - base + 1)):
            self._counts[start:stop] = array("H", (min(count + more, MOST_DELIVERIES),)) * (stop - start)
