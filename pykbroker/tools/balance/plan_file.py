"""Reads the file of a plan for `balance run`, and refuses a file that cannot be run. It does not use numpy.

kafka-reassign-partitions and `pykbroker reassign` take the file too. Our additional keys are `cluster_id`, `coverage`,
and `now`, the replicas that each partition had. Not responsible for writing it (plan.py), nor for checking that it
still applies (execution.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pykbroker.tools.balance.seen import LEAST_COVERAGE

#: a topic's name and a partition's number
PlaceName: TypeAlias = tuple[str, int]
ANY_DIRECTORY: Final = "any"


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """`now` and `replicas`: the brokers before and after the move, in the order of preference."""

    now: tuple[int, ...]
    replicas: tuple[int, ...]
    #: bytes per second that producers wrote when the plan was made; 0 if the file does not have them
    bytes_in: float = 0.0

    @property
    def added(self) -> frozenset[int]:
        return frozenset(self.replicas) - frozenset(self.now)

    @property
    def back(self) -> PlannedMove:
        return PlannedMove(self.replicas, self.now, self.bytes_in)


@dataclass(frozen=True, slots=True)
class PlanFile:
    cluster_id: str
    moves: dict[PlaceName, PlannedMove]
    #: topic, partition, broker -> the path of the directory for this replica
    directories: dict[tuple[str, int, int], str]


def read_plan(text: str) -> PlanFile:
    """Parse a plan. Raises ValueError, in one line, if the text is not a file of `balance plan`, or if too little of
    the load was known."""
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError("the plan is no JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("partitions"), list):
        raise ValueError("the plan has no list `partitions`")
    if not isinstance(value.get("cluster_id"), str):
        raise ValueError("the plan names no `cluster_id`: only a file of `pykbroker balance plan` can be run")
    coverage = value.get("coverage")
    if not isinstance(coverage, int | float) or coverage < LEAST_COVERAGE:
        raise ValueError(
            f"the plan knows the load of {_share(coverage)} of the partitions, and {LEAST_COVERAGE:.0%} are needed"
        )
    found = PlanFile(value["cluster_id"], {}, {})
    for entry in value["partitions"]:
        _add(found, entry)
    return found


def _share(coverage: object) -> str:
    return f"{coverage:.1%}" if isinstance(coverage, int | float) else "an unknown share"


def _add(found: PlanFile, entry: Any) -> None:
    try:
        place = (str(entry["topic"]), int(entry["partition"]))
        rate = float(entry.get("bytes_in", 0.0))
        move = PlannedMove(tuple(map(int, entry["now"])), tuple(map(int, entry["replicas"])), rate)
        directories = [str(each) for each in entry.get("log_dirs", [ANY_DIRECTORY] * len(move.replicas))]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(
            f"the plan has a partition without topic, partition, now or replicas: {str(entry)[:80]}"
        ) from None
    if place in found.moves:
        raise ValueError(f"the plan has {place[0]}-{place[1]} twice")
    if not move.replicas or len(set(move.replicas)) < len(move.replicas) or len(directories) != len(move.replicas):
        raise ValueError(
            f"the plan has no list of different brokers, and a directory for each, for {place[0]}-{place[1]}"
        )
    found.moves[place] = move
    for broker, directory in zip(move.replicas, directories, strict=True):
        if directory != ANY_DIRECTORY:
            found.directories[*place, broker] = directory
