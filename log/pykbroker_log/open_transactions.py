"""Transactions of a log that are not stable yet: undecided, or decided by a marker that is not replicated.

Responsible for the first unstable offset, at a cost that does not grow with the number of transactions. Not
responsible for which producers may begin or end one (producers.py).

Invariants:
* Transactions begin in the order of their first offsets in the log; they end in any order.
* A decided transaction counts as unstable until its marker is below the high watermark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush


class OpenTransactions:
    __slots__ = ("_decided", "_undecided", "first_unstable")

    def __init__(self, undecided: Iterable[int] = ()) -> None:
        """`undecided` is the first offsets of transactions."""
        #: -1 if every transaction is stable; read at every read and every append
        self.first_unstable = -1
        # First offsets, the oldest first. (To find the first item, a plain dict walks over all that were deleted before
        # it.)
        self._undecided: OrderedDict[int, None] = OrderedDict.fromkeys(sorted(undecided))
        # A heap of (first offset, offset of the marker). Items that no longer count may stay below the top, but never
        # at the top.
        self._decided: list[tuple[int, int]] = []
        self._look()

    def begin(self, first_offset: int) -> None:
        self._undecided[first_offset] = None
        if self.first_unstable < 0:
            self.first_unstable = first_offset

    def decide(self, first_offset: int, marker_offset: int) -> None:
        del self._undecided[first_offset]
        heappush(self._decided, (first_offset, marker_offset))
        self._look()

    def replicated(self, high_watermark: int) -> None:
        """Remove transactions whose markers are below the high watermark."""
        decided = self._decided
        while decided and decided[0][1] < high_watermark:
            heappop(decided)
        self._look()

    def _look(self) -> None:
        first = self.first_undecided()
        if self._decided and (first < 0 or self._decided[0][0] < first):
            first = self._decided[0][0]
        self.first_unstable = first

    def first_undecided(self) -> int:
        """Return the first offset of the oldest undecided transaction, or -1 if there is none."""
        return next(iter(self._undecided), -1)

    def first_undecided_but(self, first_offset: int) -> int:
        """Return the first undecided transaction that does not begin at `first_offset`, or -1 if there is none."""
        for offset in self._undecided:
            if offset != first_offset:
                return offset
        return -1


#: Shared by logs in which no transaction has ever begun. Call `begin` on an object of the log's own.
NO_TRANSACTIONS = OpenTransactions()
