"""Regular expressions that a user writes, in RE2's syntax: for names of topics, and for the bytes of records.

RE2 takes time in proportion to the length of a text. Python's `re` may take much longer, and records come from other
people.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pykbroker.tools.cluster.record_format import ReadRecord

_IN_NAMES: Final = frozenset(string.ascii_letters + string.digits + "._-")
_PATTERN_BYTES: Final = 1 << 20


def is_pattern(word: str) -> bool:
    """Return True if a word has a character that no name of a topic has."""
    return not _IN_NAMES.issuperset(word)


class TextPattern:
    """`TextPattern("orders-.*").matches_whole("orders-eu")`. Raises ValueError for a text that is not a pattern."""

    def __init__(self, text: str) -> None:
        self._compiled = _compiled(text)

    def matches_whole(self, name: str) -> bool:
        return self._compiled.fullmatch(name.encode("utf-8", "surrogateescape")) is not None

    def is_in(self, data: bytes | None) -> bool:
        """Return True if the pattern matches anywhere in the bytes. A null value has no match."""
        return data is not None and self._compiled.search(data) is not None

    def of(self, names: Iterable[str]) -> list[str]:
        """Return the names that match as a whole."""
        return [name for name in names if self.matches_whole(name)]

    def is_in_record(self, record: ReadRecord) -> bool:
        """Return True if the pattern matches in the key or in the value."""
        return self.is_in(record.value) or self.is_in(record.key)


def _compiled(text: str) -> Any:
    try:
        import re2
    except ImportError:
        raise ValueError(f"the pattern {text!r} needs the package google-re2, which is not installed") from None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _PATTERN_BYTES
    try:
        return re2.compile(text.encode("utf-8", "surrogateescape"), options)
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{text!r} is no regular expression of RE2: {said}") from None
