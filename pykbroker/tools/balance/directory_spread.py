"""Moves between the directories of a broker, so that they are equally full. Pure, without numpy.

Greedy: each step moves the replica whose size is nearest to half of the difference, from the fullest directory to the
emptiest one. Not responsible for moves between brokers, which come first (optimiser.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.balance.plan_file import PlaceName

#: A share of the mean size of a broker's directories. A smaller difference is not levelled.
_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """`replicas`: all brokers of the partition, in the order of preference; `size` in bytes."""

    topic: str
    partition: int
    broker: int
    size: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerDirectory:
    """An online directory, with its replicas."""

    broker: int
    path: str
    replicas: tuple[StoredReplica, ...]


@dataclass(frozen=True, slots=True)
class DirectoryMove:
    replica: StoredReplica
    path: str


def directory_moves(
    directories: Sequence[BrokerDirectory], held: Collection[PlaceName], *, most_moves: int | None = None
) -> list[DirectoryMove]:
    """Return moves that level the directories. `held`: partitions that stay as they are, or that move between
    brokers."""
    found: list[DirectoryMove] = []
    for broker in sorted({each.broker for each in directories}):
        found += _of_broker([each for each in directories if each.broker == broker], held)
    return found if most_moves is None else found[:most_moves]


def _of_broker(directories: Sequence[BrokerDirectory], held: Collection[PlaceName]) -> list[DirectoryMove]:
    totals = {each.path: sum(one.size for one in each.replicas) for each in directories}
    movable = {
        each.path: [one for one in each.replicas if (one.topic, one.partition) not in held and one.size > 0]
        for each in directories
    }
    found: list[DirectoryMove] = []
    slack = _TOLERANCE * sum(totals.values()) / len(totals)
    while True:
        fullest = max(totals, key=lambda path: (totals[path], path))
        emptiest = min(totals, key=lambda path: (totals[path], path))
        difference = totals[fullest] - totals[emptiest]
        # A replica moves once, and only if the difference gets smaller.
        fitting = [one for one in movable[fullest] if one.size < difference]
        if difference <= slack or not fitting:
            return found
        best = min(fitting, key=lambda one: (abs(difference - 2 * one.size), one.topic, one.partition))
        movable[fullest].remove(best)
        totals[fullest] -= best.size
        totals[emptiest] += best.size
        found.append(DirectoryMove(best, emptiest))
