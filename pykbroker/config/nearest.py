"""What the user has probably meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `word`; None where none does."""
    # Loaded for a mistake only: a node without one does not pay for it.
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: empty, or `: did you mean NAME?`."""
    name = nearest(word, known)
    return "" if name is None else f": did you mean {name}?"
