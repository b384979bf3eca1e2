"""The JSON files that tools read: their partitions, and the errors of a file that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: str) -> Any:
    """Return the value in a file. Raises ValueError with Kafka's text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        raise ValueError(f"Unable to read file {path}") from None
    return parsed_json(text)


def parsed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("The input string is not a valid JSON") from None


def partitions_of(value: Any, *keys: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the entries of `{"partitions": [{"topic": …, "partition": …, …}]}`. Raises ValueError if an entry lacks
    one of the `keys`, or for another form of JSON."""
    if not isinstance(value, dict):
        raise ValueError("The input string is not a valid JSON object")
    version = value.get("version", 1)
    if version != 1:
        raise ValueError(f"Not supported version field value {version}")
    if not isinstance(value.get("partitions"), list):
        raise ValueError("Missing partitions field")
    found = []
    for entry in value["partitions"]:
        missing = [key for key in ("topic", "partition", *keys) if not isinstance(entry, dict) or key not in entry]
        if missing:
            raise ValueError(f"Missing {missing[0]} field")
        found.append((str(entry["topic"]), int(entry["partition"]), entry))
    return found


def repeated(places: list[tuple[str, int]]) -> list[str]:
    """Return `topic-partition` of each place that occurs twice."""
    return [f"{topic}-{number}" for topic, number in dict.fromkeys(places) if places.count((topic, number)) > 1]
