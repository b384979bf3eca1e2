"""The bounds of a read: the words of --from and --to, and the offsets that they stand for. Pure.

A word is `beginning`, `end`, `stored`, an offset, -N for N offsets before the end, or a time (time_words.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pykbroker.tools.cluster.time_words import TIMES, parsed_time_ms

_MAX_OFFSET: Final = 2**63 - 1


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


def parsed_bound(text: str, now_ms: int) -> Bound:
    """Parse a word of --from or --to. Raises ValueError."""
    word = text.strip()
    if word in _WORDS:
        return _WORDS[word]
    if word.isascii() and word.isdigit():
        return Bound(BoundKind.OFFSET, _offset(word))
    if word.startswith("-") and word[1:].isascii() and word[1:].isdigit():
        return Bound(BoundKind.BEFORE_END, _offset(word[1:]))
    try:
        return Bound(BoundKind.TIME, parsed_time_ms(word, now_ms))
    except ValueError as error:
        if "is no time" not in str(error):
            raise
        raise ValueError(
            f"{text!r} is not beginning, end, stored, an offset, -N before the end, or a time: {TIMES}"
        ) from None


def _offset(digits: str) -> int:
    if len(digits) > 19 or int(digits) > _MAX_OFFSET:
        raise ValueError(f"{digits} is no offset: the greatest is {_MAX_OFFSET}")
    return int(digits)


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

    If the read follows the log, the returned offset may be after the end of the log. None is also returned for a time
    that no record has yet.
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
