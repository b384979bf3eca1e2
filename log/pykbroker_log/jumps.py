"""Jumps of the time that clients feel, and the age of a record with them. Pure.

A test moves that time with `broker.clock.advance` (pykbroker/testing/clock.py), and the wall clock stays as it is. A
jump is a pair of wall-clock time and length. The age of a record is the wall-clock time that has passed since its
timestamp, plus the jumps made after its timestamp. So a record that is produced after a jump of seven days is new.

A node outside of tests has `NO_JUMPS`, with which an age is a subtraction.

Invariant: for two timestamps the older one never has the smaller age.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple


class Jump(NamedTuple):
    """Timestamps before `at_ms` are older than the jump. `by_ms` is its length."""

    at_ms: int
    by_ms: int


class Jumps:
    """Jumps, in the order of their times. The value never changes."""

    __slots__ = ("_after", "_at", "_jumps")

    def __init__(self, jumps: Iterable[Jump] = ()) -> None:
        self._jumps = tuple(sorted(jumps))
        self._at = [jump.at_ms for jump in self._jumps]
        #: by index, the sum of the lengths from this jump on
        self._after = list(accumulate((jump.by_ms for jump in reversed(self._jumps)), initial=0))[::-1]

    def __iter__(self) -> Iterator[Jump]:
        return iter(self._jumps)

    def __len__(self) -> int:
        return len(self._jumps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Jumps) and self._jumps == other._jumps

    def __hash__(self) -> int:
        return hash(self._jumps)

    def __repr__(self) -> str:
        return f"Jumps({list(self._jumps)})"

    def __reduce__(self) -> tuple[type[Jumps], tuple[tuple[Jump, ...]]]:
        return Jumps, (self._jumps,)

    @property
    def total_ms(self) -> int:
        """The lengths of all jumps together."""
        return self._after[0]

    def with_jump(self, jump: Jump) -> Jumps:
        """Return these jumps and one more."""
        jumps = list(self._jumps)
        insort(jumps, jump)
        return Jumps(jumps)

    def after(self, timestamp_ms: int) -> int:
        """Return the lengths of the jumps made after the timestamp, together."""
        return self._after[bisect_right(self._at, timestamp_ms)] if self._jumps else 0

    def age_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """Return the age of a record with this timestamp."""
        return now_ms - timestamp_ms + self.after(timestamp_ms)

    def oldest_within(self, now_ms: int, age_ms: int) -> int:
        """Return the least timestamp whose age is at most `age_ms`."""
        found = now_ms - age_ms
        for at_ms, after in zip(reversed(self._at), self._after[-2::-1], strict=True):
            if found >= at_ms:
                break
            found = min(now_ms - age_ms + after, at_ms)
        return found


NO_JUMPS: Final = Jumps()


def no_jumps() -> Jumps:
    """Return the jumps of a node outside of tests."""
    return NO_JUMPS
