"""The file of loads that `balance plan --loads` takes: measurements of partitions by their nodes, over a window.

JSON, one object per line, one line per partition:

    {"topic": "orders", "partition": 3, "bytes_in": 120000.0, "bytes_out": 240000.0, "size": 7000000000}

`topic`, `partition` and `bytes_in` are required. `bytes_in` (written by producers) and `bytes_out` (read by consumers,
without followers) are bytes per second, averages over the window. `size` is the bytes of one replica; without it the
size comes from DescribeLogDirs. `leader_cpu` and `follower_cpu` are shares of one core. Other keys are ignored. The
load of a partition without a line is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykbroker.tools.balance.plan_file import PlaceName
from pykbroker.tools.balance.seen import LoadResource

#: Optional keys of a line, as PartitionRates has them.
_MAY_LACK: Final = ("bytes_out", "size", "leader_cpu", "follower_cpu")


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """The rates of one line; None for a key that the line lacks."""

    bytes_in: float
    bytes_out: float | None = None
    size: float | None = None
    leader_cpu: float | None = None
    follower_cpu: float | None = None


def told_by(loads: Mapping[PlaceName, PartitionRates]) -> frozenset[LoadResource]:
    """Return the resources that cannot be measured from outside, but that every line of the file has."""
    told = set()
    if all(each.bytes_out is not None for each in loads.values()):
        told.add(LoadResource.BYTES_OUT)
    if all(each.leader_cpu is not None and each.follower_cpu is not None for each in loads.values()):
        told.add(LoadResource.CPU)
    return frozenset(told)


def read_loads(text: str) -> dict[PlaceName, PartitionRates]:
    """Parse a file of loads. Raises ValueError, in one line, which names the line of the file."""
    found: dict[PlaceName, PartitionRates] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            place = (str(row["topic"]), int(row["partition"]))
            rates = PartitionRates(
                _number(row, "bytes_in"),
                *(_number(row, key) if row.get(key) is not None else None for key in _MAY_LACK),
            )
        except (KeyError, TypeError, ValueError) as error:
            said = f"has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"line {number} of the loads: {said}") from None
        if place in found:
            raise ValueError(f"line {number} of the loads: {place[0]}-{place[1]} has a line before this one")
        found[place] = rates
    if not found:
        raise ValueError("the loads have no partition")
    return found


def _number(row: dict[str, Any], key: str) -> float:
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{key} is no number from 0 on")
    return float(value)
