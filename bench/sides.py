"""The two sides of a comparison: whose figure stands beside whose.

Most measurements compare Apache Kafka with pykbroker, each measured by itself. A measurement with sides of its own
looks at pykbroker alone and finds the numbers of both, under two names each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sides:
    """`ours` is the one that should be better."""

    other: str
    ours: str

    def others(self, name: str) -> str:
        """The name under which a measurement with these sides gives the numbers `name` of the other side."""
        return f"{name}, {self.other}"


KAFKA_AND_PYKBROKER = Sides("Apache Kafka", "pykbroker")

#: As stored rows call a side, where that is not its name.
_KEYS = {KAFKA_AND_PYKBROKER.other: "kafka"}


def key_of(side: str) -> str:
    """The key of a side's figure in a stored row. Behind `_all` are those of every round."""
    return _KEYS.get(side, side)


def sides_of(row: Mapping[str, Any]) -> Sides:
    """The sides of a stored row."""
    return Sides(*row["sides"]) if "sides" in row else KAFKA_AND_PYKBROKER
