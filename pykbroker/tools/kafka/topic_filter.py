"""Regular expressions that a user has written: Apache Kafka's filter of topics, and plain ones."""

from __future__ import annotations

import re


def topic_pattern(written: str) -> re.Pattern[str]:
    """Apache Kafka's filter of topics: commas stand for "or", quotes around it are left out. Raises ValueError."""
    cleaned = re.sub(r"^[\"']+|[\"']+$", "", re.sub(r"\s", "", written.strip()).replace(",", "|"))
    return compiled(cleaned)


def compiled(expression: str, flags: re.RegexFlag = re.NOFLAG, *, written: str | None = None) -> re.Pattern[str]:
    """A user's expression. Raises ValueError that names it. `written`: what the user wrote, if `expression` is made of
    it."""
    try:
        return re.compile(expression, flags)
    except re.error:
        raise ValueError(f"{expression if written is None else written} is an invalid regex.") from None
