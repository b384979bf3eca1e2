"""What is seen of a cluster: its brokers, its partitions and their load, by name.

Without numpy, so that those that look (tools/cluster/partition_load.py) need none. Not responsible for looking, nor for
what becomes of it (load_arrays.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

#: Below this share of partitions with a load a plan would be a guess.
LEAST_COVERAGE: Final = 0.95


class LoadResource(IntEnum):
    """What a broker has of each: the columns of `broker_loads` and of `ClusterLoad.capacity`."""

    LEADER_BYTES_IN = 0
    REPLICATION_BYTES_IN = 1
    BYTES_OUT = 2
    LEADERS = 3
    DISK = 4
    CPU = 5


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """Rates in bytes per second; `bytes_in` None: nothing is known of it."""

    topic: str
    number: int
    #: in the order of preference
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    size: float
    bytes_in: float | None
    bytes_out: float = 0.0
    #: shares of one core
    leader_cpu: float = 0.0
    follower_cpu: float = 0.0
    is_moving: bool = False
    has_leader: bool = True


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """`capacity`: the most of each resource; what is not named is not limited."""

    id: int
    rack: str | None = None
    is_alive: bool = True
    capacity: Mapping[LoadResource, float] = field(default_factory=dict)
    most_replicas: int | None = None


def in_words(resource: LoadResource, value: float) -> str:
    """A load for a person: bytes and counts whole, shares of a core with four digits."""
    return f"{value:.4g}" if resource is LoadResource.CPU else f"{value:,.0f}"


def rounded(resource: LoadResource, value: float) -> float:
    """The same as a number."""
    return float(f"{value:.4g}") if resource is LoadResource.CPU else round(value)


def coverage(partitions: Sequence[SeenPartition]) -> float:
    """The share of partitions of which a load is known; 1 of none."""
    return sum(each.bytes_in is not None for each in partitions) / len(partitions) if partitions else 1.0
