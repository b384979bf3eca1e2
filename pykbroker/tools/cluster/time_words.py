"""The times and the durations that options of commands take, in one form for all commands. Pure.

A time is a date (`2026-01-31`), a date and a time (`2026-01-31T12:00`), `now`, a duration before now (`-15m`, `1h`), or
`@` and milliseconds since 1970. A date or time without a zone is in UTC, as in Apache Kafka's tools.

A duration is a number with a unit, or several (`15m`, `1h30m`, `7d`), or ISO 8601's form (`PT1H`). A command that has
always taken plain numbers of one unit still takes them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

#: The end of the help of each option that takes a time.
TIMES: Final = "2026-01-31, 2026-01-31T12:00 (UTC without a zone), now, -15m or 1h (ago), or @MS since 1970"
#: The end of the help of each option that takes a duration.
DURATIONS: Final = "500ms, 30s, 15m, 1h30m, 7d, PT1H"
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)"
_DURATION: Final = re.compile(rf"(?:{_PART})+")
_ISO_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d{1,9})D)?(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:[.,]\d{1,9})?)S)?)?", re.IGNORECASE
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GREATEST_MS: Final = 2**63 - 1


def parsed_time_ms(text: str, now_ms: int) -> int:
    """Return a time in milliseconds since 1970. Raises ValueError."""
    word = text.strip()
    if word == "now":
        return now_ms
    if word.startswith("@") and word[1:].isascii() and word[1:].isdigit():
        found_ms = int(word[1:20])
        if len(word) > 20 or found_ms > _GREATEST_MS:
            raise ValueError(f"{text!r} is later than any time of a record")
        return found_ms
    before_ms = _duration_ms(word.removeprefix("-"))
    then_ms = _date_ms(word) if before_ms is None else now_ms - before_ms
    if then_ms is None:
        raise ValueError(f"{text!r} is no time: {TIMES}")
    if then_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return then_ms


def parsed_duration_ms(text: str, unit: str | None = None) -> int:
    """Return a duration in milliseconds. `unit`: that of a plain number, which is refused without it. Raises
    ValueError."""
    word = text.strip()
    if unit is not None and re.fullmatch(r"[0-9.]+", word):
        word += unit
    found_ms = _duration_ms(word)
    if found_ms is None:
        raise ValueError(f"{text!r} is no duration: {DURATIONS}")
    return found_ms


def _duration_ms(word: str) -> int | None:
    if _DURATION.fullmatch(word):
        return round(sum(float(number) * _UNITS_MS[unit] for number, unit in re.findall(_PART, word)))
    found = _ISO_DURATION.fullmatch(word)
    if found is None:
        return None
    days, hours, minutes = (int(part or 0) for part in found.group(1, 2, 3))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float((found[4] or "0").replace(",", ".")) * 1000)


def _date_ms(word: str) -> int | None:
    try:
        found = datetime.fromisoformat(word)
        return (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
