"""The name and the version of a client's software, as ApiVersions has them (KIP-511)."""

from __future__ import annotations

import re
from typing import Final

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_software(*words: str) -> bool:
    """Return True if each word can be the name or the version of software."""
    return all(map(_SOFTWARE.fullmatch, words))
