"""The intended differences from Apache Kafka, each with its reason, and a count of their occurrences.

A test fails for a difference that no row describes. It also fails for a row without an occurrence in a long enough run,
because the row would describe a difference that no longer exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Difference(Generic[Case]):
    """`explains` returns True if this difference alone explains `case`."""

    what: str
    reason: str
    explains: Callable[[Case], bool]


class Differences(Generic[Case]):
    def __init__(self, rows: Sequence[Difference[Case]]) -> None:
        self._rows = rows
        self._seen: Counter[str] = Counter()

    def explain(self, case: Case) -> bool:
        """Return True if a row explains the case, and count it there."""
        for row in self._rows:
            if row.explains(case):
                self._seen[row.what] += 1
                return True
        return False

    def assert_all_seen(self) -> None:
        missing = [row.what for row in self._rows if row.what not in self._seen]
        assert not missing, f"never met: {missing}"
