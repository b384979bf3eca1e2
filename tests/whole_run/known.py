"""The list of tests that were flaky (`flaky.toml`): some are open, and the others are mended and get no second chance.

`python -m tests.whole_run.known --check` fails if the list is not well formed, or if it holds more open entries than
`MOST_OPEN`.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("flaky.toml")
MOST_OPEN: Final = 5
_KEYS: Final = {"test", "date", "cause", "mended"}


@dataclass(frozen=True, slots=True)
class Known:
    """One entry. `mended`: the commit that removed the cause; empty while the entry is open."""

    test: str
    date: str
    cause: str
    mended: str


def read(text: str) -> list[Known]:
    """Raises ValueError if an entry lacks a key or has one too many."""
    entries = tomllib.loads(text).get("flaky", [])
    for entry in entries:
        if set(entry) != _KEYS:
            raise ValueError(f"an entry has the keys {sorted(entry)}, not {sorted(_KEYS)}")
    return [Known(**{key: str(value) for key, value in entry.items()}) for entry in entries]


def mended() -> list[str]:
    return [known.test for known in read(FILE.read_text()) if known.mended]


def check(text: str) -> str | None:
    """Return the error of the list, or None."""
    try:
        open_entries = [known.test for known in read(text) if not known.mended]
    except ValueError as error:
        return str(error)
    if len(open_entries) > MOST_OPEN:
        return f"{len(open_entries)} open entries, and {MOST_OPEN} are allowed: {', '.join(open_entries)}"
    return None


if __name__ == "__main__":
    if wrong := check(FILE.read_text()):
        sys.exit(f"{FILE.name}: {wrong}")
