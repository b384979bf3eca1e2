"""The bounds of a read: the words of --from and --to, and the offsets that they stand for. Pure.

A word is `beginning`, `end`, `stored`, an offset, -N for N offsets before the end, or a time as ISO 8601 or
@milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

_MAX_OFFSET: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SAID: Final = "not beginning, end, stored, an offset, -N before the end, a time (2026-01-31T12:00) or @milliseconds"


class BoundKind(Enum):
    BEGINNING = "beginning"
    END = "end"
    #: the offset that the group has committed
    STORED = "stored"
    OFFSET = "offset"
    #: a number of offsets before the end
    BEFORE_END = "before the end"
    #: milliseconds since the epoch
    TIME = "time"


@dataclass(slots=True, frozen=True)
class Bound:
    kind: BoundKind
    value: int = 0


BEGINNING: Final = Bound(BoundKind.BEGINNING)
END: Final = Bound(BoundKind.END)
STORED: Final = Bound(BoundKind.STORED)
_WORDS: Final = {"beginning": BEGINNING, "end": END, "stored": STORED}


def parsed_bound(text: str) -> Bound:
    """Parse a word of --from or --to. Raises ValueError."""
    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]
    if word.isascii() and word.isdigit():
        return Bound(BoundKind.OFFSET, _offset(word))
    if word.startswith("-") and word[1:].isascii() and word[1:].isdigit():
        return Bound(BoundKind.BEFORE_END, _offset(word[1:]))
    return Bound(BoundKind.TIME, parsed_time_ms(word))


def _offset(digits: str) -> int:
    if len(digits) > 19 or int(digits) > _MAX_OFFSET:
        raise ValueError(f"{digits} is no offset: the greatest is {_MAX_OFFSET}")
    return int(digits)


def parsed_time_ms(text: str) -> int:
    """Parse a time, and return milliseconds since the epoch. A time without a zone is local. Raises ValueError."""
    word = text.strip()
    if word.startswith("@") and word[1:].isascii() and word[1:].isdigit():
        return _offset(word[1:])
    try:
        found = datetime.fromisoformat(word)
        if found.tzinfo is None:
            found = found.astimezone()
        found_ms = (found - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is {_SAID}") from None
    if found_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return found_ms


@dataclass(slots=True, frozen=True)
class Extent:
    """The two ends of a partition when a read of it begins."""

    #: the offset of the first record
    beginning: int
    #: the offset after the last record that may be read
    end: int


def first_offset(bound: Bound, extent: Extent, *, stored: int | None = None, at_time: int | None = None) -> int:
    """Return the offset of the first record to read, within the extent.

    `stored`: the offset that the group has committed, or None if it has none; `at_time`: the first offset at the
    bound's time or later, or None if there is none.
    """
    if bound.kind is BoundKind.STORED:
        found = extent.beginning if stored is None else stored
    elif bound.kind is BoundKind.TIME:
        found = extent.end if at_time is None else at_time
    else:
        found = _counted(bound, extent)
    return min(max(found, extent.beginning), extent.end)


def last_offset(bound: Bound, extent: Extent, *, at_time: int | None = None, follows: bool = False) -> int | None:
    """Return the offset before which the read ends, or None if no offset ends it.

    If the read follows the log, its end may be an offset, or a record of a time, that does not exist yet.
    """
    if bound.kind is BoundKind.TIME:
        return at_time if follows or at_time is not None else extent.end
    found = _counted(bound, extent)
    return found if follows else min(found, extent.end)


def _counted(bound: Bound, extent: Extent) -> int:
    if bound.kind is BoundKind.OFFSET:
        return bound.value
    if bound.kind is BoundKind.BEFORE_END:
        return max(extent.beginning, extent.end - bound.value)
    return extent.beginning if bound.kind is BoundKind.BEGINNING else extent.end
