"""Finds the known name that a user has probably meant by an unknown name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `word`, or None if no name is similar enough."""
    # Imported only for an unknown name, so that a node without one does not load it.
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: empty, or `: did you mean NAME?`."""
    name = nearest(word, known)
    return "" if name is None else f": did you mean {name}?"
