"""Names of topics by Apache Kafka's regular expressions."""

from __future__ import annotations

import re


def topic_pattern(written: str) -> re.Pattern[str]:
    """Apache Kafka's filter of topics: commas stand for "or", quotes around it are left out. Raises ValueError."""
    cleaned = re.sub(r"^[\"']+|[\"']+$", "", re.sub(r"\s", "", written.strip()).replace(",", "|"))
    try:
        return re.compile(cleaned)
    except re.error:
        raise ValueError(f"{cleaned} is an invalid regex.") from None
