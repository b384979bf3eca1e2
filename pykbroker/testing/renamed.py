"""Arguments and methods that have a new name. The old name works for one release, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from typing import TypeVar

T = TypeVar("T")


def newer(old: str, given: T | None, new: str, value: T | None) -> T | None:
    """Return the value of an argument whose name was `old` and is `new`. Raises TypeError if both are given."""
    if given is None:
        return value
    if value is not None:
        raise TypeError(f"{new} and {old} are the same argument")
    warn(old, new, stacklevel=4)
    return given


def warn(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn of an old name. The warning names the line that calls the function that calls `warn`."""
    warnings.warn(f"{old} is {new} now, and goes with the next release", DeprecationWarning, stacklevel=stacklevel)
