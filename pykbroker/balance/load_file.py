"""The file of loads that `balance plan --loads` takes: what nodes have told of their partitions, over a window.

JSON, one object a line, one line a partition:

    {"topic": "orders", "partition": 3, "bytes_in": 120000.0, "bytes_out": 240000.0, "size": 7000000000}

`topic`, `partition` and `bytes_in` must be there. `bytes_in` (what producers write) and `bytes_out` (what consumers
read, followers not among them) are bytes per second, the means of the window; `size` bytes of one replica (left out: as
DescribeLogDirs tells); `leader_cpu` and `follower_cpu` shares of one core. Other keys are passed over. A partition
without a line has no known load.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from pykbroker.balance.plan_file import PlaceName


@dataclass(frozen=True, slots=True)
class PartitionRates:
    bytes_in: float
    bytes_out: float = 0.0
    size: float | None = None
    leader_cpu: float = 0.0
    follower_cpu: float = 0.0


def read_loads(text: str) -> dict[PlaceName, PartitionRates]:
    """Raises ValueError, in one line, which names the line of the file."""
    found: dict[PlaceName, PartitionRates] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            place = (str(row["topic"]), int(row["partition"]))
            rates = PartitionRates(
                _number(row, "bytes_in"),
                _number(row, "bytes_out", 0.0),
                _number(row, "size") if row.get("size") is not None else None,
                _number(row, "leader_cpu", 0.0),
                _number(row, "follower_cpu", 0.0),
            )
        except (KeyError, TypeError, ValueError) as error:
            said = f"has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"line {number} of the loads: {said}") from None
        if place in found:
            raise ValueError(f"line {number} of the loads: {place[0]}-{place[1]} stands there twice")
        found[place] = rates
    if not found:
        raise ValueError("the loads have no partition")
    return found


def _number(row: dict[str, Any], key: str, default: float | None = None) -> float:
    value = row.get(key, default) if default is not None else row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{key} is no number from 0 on")
    return float(value)
