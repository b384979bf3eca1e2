"""Faults of a cluster as values, and how a seed chooses them.

Responsible for what may happen and when. Not responsible for doing it (faults.py), nor for how much a cluster promises
to survive (its caller).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """A fault. It lasts for `seconds` if it has them."""

    KILL = "kill"
    #: in the middle of a call of its disk
    KILL_AT_DISK = "kill at a call of the disk"
    KILL_ALL = "kill all"
    STOP = "stop"
    PAUSE = "pause"
    POWER = "power loss"
    POWER_AT_DISK = "power loss at a call of the disk"
    ISOLATE = "isolate"
    #: what it sends, or what is sent to it, is lost
    ONE_WAY = "one way"
    SPLIT = "split"
    #: two halves that only one node can reach
    BRIDGE = "bridge"
    #: only the other nodes can reach it
    NO_CLIENTS = "no clients"
    SLOW_LINK = "slow link"
    RESET = "reset"
    LOSE_CONNECTIONS = "lose connections"
    #: the process lives and its port refuses connections
    REFUSE = "refuse"
    FLAP = "flap"
    SLOW_DISK = "slow disk"
    DEAD_DISK = "dead disk"
    FULL_DISK = "full disk"
    CLOCK = "clock"
    RESIGN = "resign"


class Who(Enum):
    """The node of a fault, which is chosen when the fault begins."""

    ANY = "any"
    #: the active controller
    CONTROLLER = "controller"
    #: the leader of a partition of the data
    LEADER = "leader"
    #: the leader of a partition of an internal topic
    COORDINATOR = "coordinator"


_WEIGHTS: dict[Kind, int] = {
    Kind.KILL: 14,
    Kind.KILL_AT_DISK: 8,
    Kind.KILL_ALL: 3,
    Kind.STOP: 7,
    Kind.PAUSE: 9,
    Kind.POWER: 8,
    Kind.POWER_AT_DISK: 6,
    Kind.ISOLATE: 9,
    Kind.ONE_WAY: 8,
    Kind.SPLIT: 5,
    Kind.BRIDGE: 4,
    Kind.NO_CLIENTS: 3,
    Kind.SLOW_LINK: 6,
    Kind.RESET: 4,
    Kind.LOSE_CONNECTIONS: 5,
    Kind.REFUSE: 6,
    Kind.FLAP: 4,
    Kind.SLOW_DISK: 5,
    Kind.DEAD_DISK: 3,
    Kind.FULL_DISK: 2,
    Kind.CLOCK: 4,
    Kind.RESIGN: 3,
}
LOSSY = frozenset({Kind.POWER, Kind.POWER_AT_DISK})
#: Faults that last longer now and then, so that sessions end during them.
_LONG = frozenset({Kind.PAUSE, Kind.ISOLATE, Kind.ONE_WAY, Kind.SPLIT, Kind.BRIDGE, Kind.KILL, Kind.POWER})


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is in seconds since the begin of the safety phase. `level`, from 0 to 1, is the severity. `draw` is for
    later choices."""

    number: int
    at: float
    kind: Kind
    who: Who
    seconds: float
    level: float
    draw: int


def draw_faults(rng: random.Random, seconds: float, *, may_lose_power: bool, flushes: bool) -> list[Fault]:
    """Draw the faults of a run, in the order of their times, which are between 0 and `seconds`. With `flushes` each
    append is flushed before it is acknowledged, so that every machine may lose power."""
    weights = dict(_WEIGHTS)
    if not may_lose_power:
        for kind in LOSSY:
            del weights[kind]
    if flushes:
        for kind in LOSSY:
            weights[kind] *= 3
    # A run with few kinds of faults shows their effects on each other.
    if rng.random() < 0.4:
        chosen = rng.choices(list(weights), list(weights.values()), k=3)
        weights = {kind: weights[kind] for kind in chosen}
    faults = []
    times = sorted(rng.uniform(0.0, seconds) for _ in range(rng.randint(2, 8)))
    if rng.random() < 0.25:
        # Several faults at once.
        times = [times[0] + rng.uniform(0.0, 1.0) for _ in times]
        times.sort()
    for number, at in enumerate(times):
        kind = rng.choices(list(weights), list(weights.values()))[0]
        longest = 10.0 if kind in _LONG and rng.random() < 0.4 else 3.0
        faults.append(
            Fault(
                number=number,
                at=at,
                kind=kind,
                who=rng.choices(list(Who), [4, 3, 4, 2])[0],
                seconds=rng.uniform(0.05, longest),
                level=rng.random(),
                draw=rng.getrandbits(32),
            )
        )
    return faults
