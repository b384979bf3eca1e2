"""Regular expressions of users: Apache Kafka's filter of topics, and plain regular expressions."""

from __future__ import annotations

import re


def topic_pattern(written: str) -> re.Pattern[str]:
    """Compile Apache Kafka's filter of topics. A comma in it means "or", and quotes around it are removed. Raises
    ValueError."""
    cleaned = re.sub(r"^[\"']+|[\"']+$", "", re.sub(r"\s", "", written.strip()).replace(",", "|"))
    return compiled(cleaned)


def compiled(expression: str, flags: re.RegexFlag = re.NOFLAG, *, written: str | None = None) -> re.Pattern[str]:
    """Compile a user's expression. Raises a ValueError that names it. `written`: the user's text, if `expression` was
    built from it."""
    try:
        return re.compile(expression, flags)
    except re.error:
        raise ValueError(f"{expression if written is None else written} is an invalid regex.") from None
