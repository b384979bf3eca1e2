"""The topics that the words of a command line name: plain names, and patterns that a whole name has to match."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from pykbroker.tools.cluster.text_pattern import TextPattern, is_pattern

if TYPE_CHECKING:
    from pykbroker.tools.cluster.topics import ListedTopic, TopicSummary


def named_topics(
    words: Iterable[str], listed: Sequence[ListedTopic | TopicSummary], *, may_be_none: bool = False
) -> list[str]:
    """Return each named topic once. Topics that Kafka keeps for itself match no pattern.

    `may_be_none`: a name that does not exist is returned, and a pattern without a match is no error. Otherwise both
    raise ClickException.
    """
    from pykbroker.tools.commands.unknown_names import unknown_topic

    known = {one.name: one.is_internal for one in listed}
    found: dict[str, None] = {}
    for word in words:
        if word in known or (may_be_none and not is_pattern(word)):
            found[word] = None
        elif not is_pattern(word):
            raise unknown_topic(word, known)
        else:
            matching = pattern_of(word).of(name for name, is_internal in known.items() if not is_internal)
            if not matching and not may_be_none:
                raise click.ClickException(
                    f"No topic matches {word!r}, a regular expression of RE2 for whole names: `.*` is any text"
                )
            found |= dict.fromkeys(matching)
    return list(found)


def pattern_of(text: str) -> TextPattern:
    """Return the pattern. Raises UsageError."""
    try:
        return TextPattern(text)
    except ValueError as error:
        raise click.UsageError(f"{error}.", click.get_current_context(silent=True)) from None
