"""The two sides of a comparison, whose figures are printed next to each other.

Most measurements compare Apache Kafka with pykbroker, each measured by itself. A measurement with its own sides runs
once, whatever the sides of the run are, and returns the numbers of both of its sides, under different names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sides:
    """`ours` is the side that should be better."""

    other: str
    ours: str

    def others(self, name: str) -> str:
        """Return the name under which a measurement with these sides returns the numbers `name` of the other side."""
        return f"{name}, {self.other}"


KAFKA_AND_PYKBROKER = Sides("Apache Kafka", "pykbroker")

#: The names of sides in stored rows, if they differ.
_KEYS = {KAFKA_AND_PYKBROKER.other: "kafka"}


def key_of(side: str) -> str:
    """Return the key of a side's figure in a stored row. The key with `_all` has the figures of every round."""
    return _KEYS.get(side, side)


def sides_of(row: Mapping[str, Any]) -> Sides:
    """Return the sides of a stored row."""
    return Sides(*row["sides"]) if "sides" in row else KAFKA_AND_PYKBROKER
