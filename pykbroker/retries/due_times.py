"""Items by the time at which they are due: for rests and deadlines, of which most are withdrawn before their time.

Pure: time is a number that the caller passes. An item that is withdrawn is gone at once. A time has one entry in a heap
as soon as it has an item, and the entry stays until that time. So callers round times of which there could be many.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DueTimes(Generic[T]):
    """Each item has at most one time."""

    __slots__ = ("_heap", "_items", "_times")

    def __init__(self) -> None:
        self._times: dict[T, float] = {}
        self._items: dict[float, dict[T, None]] = {}
        self._heap: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, item: T) -> bool:
        return item in self._times

    def items(self) -> list[T]:
        """Return all items, in the order in which they were set."""
        return list(self._times)

    def set(self, item: T, due: float) -> None:
        """Add an item that is not here yet."""
        assert item not in self._times
        self._times[item] = due
        together = self._items.get(due)
        if together is None:
            together = self._items[due] = {}
            heapq.heappush(self._heap, due)
        together[item] = None

    def withdraw(self, item: T) -> None:
        """Remove an item, if it is here."""
        due = self._times.pop(item, None)
        if due is not None:
            # The time keeps its entry in the heap, so that setting and withdrawing adds no second one.
            del self._items[due][item]

    def take(self, now: float, most: int | None = None) -> list[T]:
        """Remove and return the items that are due, the earliest first. No more than `most`, if it is given."""
        found: list[T] = []
        while self._heap and self._heap[0] <= now and (most is None or len(found) < most):
            due = self._heap[0]
            together = self._items[due]
            taken = list(together if most is None else islice(together, most - len(found)))
            if len(taken) == len(together):
                del self._items[heapq.heappop(self._heap)]
            else:
                for item in taken:
                    del together[item]
            for item in taken:
                del self._times[item]
            found += taken
        return found

    def next_due(self) -> float | None:
        """Return the earliest time that has an item, None if there are no items."""
        while self._heap and not self._items[self._heap[0]]:
            del self._items[heapq.heappop(self._heap)]
        return self._heap[0] if self._heap else None
