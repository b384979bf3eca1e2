"""The pauses of the partitions of one fetcher, each after an error or an answer without progress; pure.

Responsible for when each pause ends. Not responsible for its reason and length (fetcher.py).

Invariant: `is_delayed` is True for exactly the partitions that are here.
"""

from __future__ import annotations

import math

from pykbroker.replica.fetching.partition_fetch import PartitionFetch


class Delays:
    """The delayed partitions. Times are in seconds of the loop's clock."""

    __slots__ = ("_next_end", "_until")

    def __init__(self) -> None:
        self._until: dict[PartitionFetch, float] = {}
        # This is at most the time of the first end, so that most calls of `end_due` look at no partition.
        self._next_end = math.inf

    @property
    def next_end(self) -> float | None:
        """The time at which the next delay ends, or shortly before it. None if no partition is delayed."""
        return self._next_end if self._until else None

    def begin(self, fetch: PartitionFetch, until: float) -> bool:
        """Delay the partition. Return False, and change nothing, if it is delayed already."""
        if fetch.is_delayed:
            return False
        fetch.is_delayed = True
        self._until[fetch] = until
        self._next_end = min(self._next_end, until)
        return True

    def forget(self, fetch: PartitionFetch) -> None:
        """Note that the fetcher no longer has the partition, which may be delayed."""
        self._until.pop(fetch, None)

    def end_due(self, now: float) -> list[PartitionFetch]:
        """End the delays that are over by now, and return their partitions."""
        if self._next_end > now:
            return []
        ended = [fetch for fetch, until in self._until.items() if until <= now]
        for fetch in ended:
            del self._until[fetch]
            fetch.is_delayed = False
        self._next_end = min(self._until.values(), default=math.inf)
        return ended

    def end_all(self) -> list[PartitionFetch]:
        """End all delays, and return their partitions."""
        ended = list(self._until)
        self._until.clear()
        for fetch in ended:
            fetch.is_delayed = False
        return ended
