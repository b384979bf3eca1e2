"""`--feature NAME=LEVEL`, as kafka-storage reads it."""

from __future__ import annotations


def name_and_level(text: str) -> tuple[str, int]:
    """Raises ValueError with Apache Kafka's text."""
    name, equals, level = text.partition("=")
    if not equals:
        raise ValueError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        number = int(level)
    except ValueError:
        number = 1 << 15
    if not -(1 << 15) <= number < 1 << 15:
        raise ValueError(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.")
    return name.strip(), number
