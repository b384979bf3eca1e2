"""Texts that clients, files and other programs have chosen, as one line that steers no terminal."""

from __future__ import annotations

import re
from typing import Final

#: What ends a line for a reader or a terminal (those of str.splitlines), what else steers one (escapes, the direction
#: of letters), and halves of characters, which no encoding has. A tab stays.
_STEERS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    r"""The text with such characters as Python writes them: \n for the end of a line."""
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
