"""The check of the name and the version of a client's software in ApiVersions (KIP-511)."""

from __future__ import annotations

import re
from typing import Final

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_software(*words: str) -> bool:
    """Return True if each word has the form of a name or a version of software."""
    return all(map(_SOFTWARE.fullmatch, words))
