"""Dates by the patterns of Java's SimpleDateFormat.

Responsible for the letters y, M, d, H, m, s and S and for quoted text. A pattern with another letter is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

_PART: Final = re.compile(r"''|'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)
#: The letters of Java that are not in `_FIELDS`.
_JAVA_ONLY: Final = frozenset("GYLwWDFEuaKkhzZX")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def date_format(pattern: str) -> Callable[[float], str]:
    """Return a function that converts seconds since the epoch to the text of a local time. Raises ValueError."""
    parts: list[str | tuple[str, int]] = []
    for found in _PART.finditer(pattern):
        text, quoted, letter = found[0], found[1], found[2]
        if text == "''":
            parts.append("'")
        elif quoted is not None:
            parts.append(quoted.replace("''", "'"))
        elif letter in _FIELDS:
            parts.append((letter, len(text)))
        elif letter in _JAVA_ONLY:
            raise ValueError(f"The pattern letter '{letter}' of --date-format is not supported by pykbroker")
        elif letter:
            raise ValueError(f"Illegal pattern character '{letter}'")
        elif text == "'":
            raise ValueError("Unterminated quote")
        else:
            parts.append(text)

    def written(seconds: float) -> str:
        moment = datetime.fromtimestamp(seconds)
        return "".join(part if isinstance(part, str) else _FIELDS[part[0]](moment, part[1]) for part in parts)

    return written


def _year(moment: datetime, width: int) -> str:
    return f"{moment.year % 100:02d}" if width == 2 else f"{moment.year:0{width}d}"


def _month(moment: datetime, width: int) -> str:
    if width < 3:
        return f"{moment.month:0{width}d}"
    name = _MONTHS[moment.month - 1]
    return name if width > 3 else name[:3]


_FIELDS: Final[dict[str, Callable[[datetime, int], str]]] = {
    "y": _year,
    "M": _month,
    "d": lambda moment, width: f"{moment.day:0{width}d}",
    "H": lambda moment, width: f"{moment.hour:0{width}d}",
    "m": lambda moment, width: f"{moment.minute:0{width}d}",
    "s": lambda moment, width: f"{moment.second:0{width}d}",
    "S": lambda moment, width: f"{moment.microsecond // 1000:0{width}d}",
}
