"""The smallest part of a world's events that is enough for a failure (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(events: Sequence[T], fails: Callable[[list[T]], bool], tries: int = 60) -> list[T]:
    """Return a part of `events` with which `fails` is still true, and of which no event can be left out.

    `events`: values that can be hashed, each of them once. All of them together fail. `fails(part)` runs the world
    again with this part alone. After `tries` runs the smallest part so far is returned.
    """
    left = tries
    tried: set[tuple[T, ...]] = set()

    def is_enough(part: list[T]) -> bool:
        nonlocal left
        if left <= 0 or tuple(part) in tried:
            return False
        tried.add(tuple(part))
        left -= 1
        return fails(part)

    kept = list(events)
    if not kept or is_enough([]):
        return []
    size = (len(kept) + 1) // 2
    while size:
        position, has_changed = 0, False
        while position < len(kept):
            rest = kept[:position] + kept[position + size :]
            if is_enough(rest):
                kept, has_changed = rest, True
            else:
                position += size
        # After a change a single event may have become superfluous that was not before.
        size = size if size == 1 and has_changed else size // 2
    return kept
