"""The members that hold locks of a share partition, as small numbers that fit into an array.

A number is never given to a second member. Members that no longer hold a lock are forgotten when there are many, so the
table is bounded by the members that hold locks, and not by those that ever came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykbroker.share_partitions.offset_runs import NOBODY

_LEAST_SWEPT: Final = 64


class LockOwners:
    """Ids of members, each with its number from 1 on."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._last_number = NOBODY
        self._sweep_at = _LEAST_SWEPT

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, member: str) -> int:
        """Return the number of a member, or NOBODY if it holds no lock for certain."""
        return self._numbers.get(member, NOBODY)

    def add(self, member: str, held: Callable[[], set[int]]) -> int:
        """Return the number of a member that is about to hold a lock. `held` returns the numbers in use; it is called
        when the table has doubled since the last sweep."""
        number = self._numbers.get(member)
        if number is None:
            if len(self._numbers) >= self._sweep_at:
                in_use = held()
                self._numbers = {name: known for name, known in self._numbers.items() if known in in_use}
                self._sweep_at = max(_LEAST_SWEPT, 2 * len(self._numbers))
            self._last_number += 1
            number = self._numbers[member] = self._last_number
        return number

    def member(self, number: int) -> str | None:
        """Return the id of a member, or None for NOBODY. For inspection: it looks through the table."""
        return next((name for name, known in self._numbers.items() if known == number), None)
