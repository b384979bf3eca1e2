"""Transactions of a log that are not stable yet: undecided, or decided by a marker that is not replicated.

Responsible for the first unstable offset, at a cost that does not grow with the number of transactions. Not
responsible for who may begin or end one (producers.py).

Invariants:
* Transactions begin in the order of their first offsets, as they stand in the log; they end in any order.
* A decided transaction counts as long as its marker is not below the high watermark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush


class OpenTransactions:
    __slots__ = ("_decided", "_undecided", "first_unstable")

    def __init__(self, undecided: Iterable[int] = ()) -> None:
        """`undecided`: the first offsets of transactions."""
        #: -1 when everything is stable; asked at every read and every append
        self.first_unstable = -1
        # First offsets, the oldest first. (The first item of a plain dict is found by walking over all that were
        # deleted before it.)
        self._undecided: OrderedDict[int, None] = OrderedDict.fromkeys(sorted(undecided))
        # A heap of (first offset, offset of the marker). Those that are not on top leave it late, but on top is only
        # what counts.
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
        """Everything below is on all in-sync replicas."""
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
        """-1 when every transaction is decided."""
        return next(iter(self._undecided), -1)

    def first_undecided_but(self, first_offset: int) -> int:
        """The first undecided transaction that does not begin at `first_offset`; -1 when there is none."""
        for offset in self._undecided:
            if offset != first_offset:
                return offset
        return -1


#: What most logs have: none has ever begun. `begin` one in an object of its own.
NO_TRANSACTIONS = OpenTransactions()
