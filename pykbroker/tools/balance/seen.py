"""The measured state of a cluster: its brokers, its partitions and their load, by name.

It does not use numpy, so that the modules that measure (tools/cluster/partition_load.py) do not need it. Not
responsible for measuring, nor for the use of the state (load_arrays.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

#: A plan with the load of a smaller share of the partitions would be a guess.
LEAST_COVERAGE: Final = 0.95


class LoadResource(IntEnum):
    """The resources of a broker: the columns of `broker_loads` and of `ClusterLoad.capacity`."""

    LEADER_BYTES_IN = 0
    REPLICATION_BYTES_IN = 1
    BYTES_OUT = 2
    LEADERS = 3
    DISK = 4
    CPU = 5


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """Rates in bytes per second; `bytes_in` is None if the load is unknown."""

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
    """`capacity`: the most of each resource; a resource without an entry has no limit."""

    id: int
    rack: str | None = None
    is_alive: bool = True
    capacity: Mapping[LoadResource, float] = field(default_factory=dict)
    most_replicas: int | None = None


def in_words(resource: LoadResource, value: float) -> str:
    """Return the text of a load: bytes and counts as whole numbers, shares of a core with four digits."""
    return f"{value:.4g}" if resource is LoadResource.CPU else f"{value:,.0f}"


def rounded(resource: LoadResource, value: float) -> float:
    """Return the value rounded as `in_words` shows it, as a number."""
    return float(f"{value:.4g}") if resource is LoadResource.CPU else round(value)


def coverage(partitions: Sequence[SeenPartition]) -> float:
    """The share of partitions whose load is known; 1 without partitions."""
    return sum(each.bytes_in is not None for each in partitions) / len(partitions) if partitions else 1.0
