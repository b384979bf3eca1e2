"""The offsets that a group gets when it is reset, from the offsets of its topics.

Responsible for the offset of each partition. groups.py commits them; this module prints nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from pykbroker.tools.cluster import log_offsets
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.groups import KnownOffset
from pykbroker.tools.cluster.reset_plan import BadReset, within

OffsetOf: TypeAlias = dict[PartitionName, int]
#: called with a partition, the wanted offset, and the offset that the group gets instead
OnBound: TypeAlias = Callable[[PartitionName, int, int], None]


class ResetTold(Protocol):
    """Gets the partitions whose new offset is not the wanted one."""

    def bound(self, place: PartitionName, wanted: int, given: int) -> None:
        """The wanted offset is not between the ends of the partition, so the group gets `given`."""

    def later(self, place: PartitionName) -> None:
        """The partition has no record from the wanted time on, so the group gets its end."""


def planned(
    cluster: AskedCluster,
    target: str,
    value: int,
    places: Sequence[PartitionName],
    known: Mapping[PartitionName, KnownOffset],
    told: ResetTold,
) -> OffsetOf:
    """Return the new offset of each partition. `target`: the option of kafka-consumer-groups without its dashes;
    `value`: the argument of that option, a time or a duration in milliseconds. Raises AskFailed, BadReset."""
    match target:
        case "to-earliest":
            return ends(cluster, places, log_offsets.EARLIEST)
        case "to-latest":
            return ends(cluster, places, log_offsets.LATEST)
        case "to-current":
            return current(cluster, places, known)
        case "to-offset":
            return within_ends(cluster, dict.fromkeys(places, value), told.bound)
        case "shift-by":
            return shifted(cluster, places, known, value, told.bound)
        case "to-datetime":
            return at_time(cluster, places, value, told.later)
    assert target == "by-duration", target
    return at_time(cluster, places, int(time.time() * 1000) - value, told.later)


def ends(cluster: AskedCluster, places: Collection[PartitionName], which: int) -> OffsetOf:
    """Return the offset of each partition at a time in milliseconds, or at a constant of log_offsets. Raises
    AskFailed."""
    found = {}
    for place, at in log_offsets.found(cluster, dict.fromkeys(places, which)).items():
        if isinstance(at, AskFailed):
            raise at
        found[place] = at.offset
    return found


def at_time(
    cluster: AskedCluster,
    places: Collection[PartitionName],
    timestamp_ms: int,
    on_later: Callable[[PartitionName], None],
) -> OffsetOf:
    """Return the offset of the first record at a time or after it. For a partition without such a record, return its
    end, and call `on_later`."""
    found = ends(cluster, places, timestamp_ms)
    late = ends(cluster, [place for place, at in found.items() if at < 0], log_offsets.LATEST)
    for place in late:
        on_later(place)
    return found | late


def within_ends(cluster: AskedCluster, wanted: Mapping[PartitionName, int], on_bound: OnBound) -> OffsetOf:
    """Return the wanted offsets, each limited to the ends of its partition. `on_bound` is called for each offset that
    this changes."""
    first = ends(cluster, wanted, log_offsets.EARLIEST)
    last = ends(cluster, wanted, log_offsets.LATEST)
    found = {}
    for place, at in wanted.items():
        found[place] = within(at, first[place], last[place])
        if found[place] != at:
            on_bound(place, at, found[place])
    return found


def shifted(
    cluster: AskedCluster,
    places: Sequence[PartitionName],
    known: Mapping[PartitionName, KnownOffset],
    by: int,
    on_bound: OnBound,
) -> OffsetOf:
    """Return the committed offsets, moved by `by`. Raises BadReset for a partition without a committed offset."""
    for place in places:
        if place not in known:
            raise BadReset(
                f"Cannot shift offset for partition {place[0]}-{place[1]} since there is no current committed offset",
                plain=f"The group has no offset in {place[0]}-{place[1]} yet, so there is nothing to shift",
            )
    return within_ends(cluster, {place: known[place].offset + by for place in places}, on_bound)


def current(
    cluster: AskedCluster, places: Sequence[PartitionName], known: Mapping[PartitionName, KnownOffset]
) -> OffsetOf:
    """Return the committed offset of each partition, or the partition's end if the group has committed none."""
    rest = ends(cluster, [place for place in places if place not in known], log_offsets.LATEST)
    return {place: known[place].offset if place in known else rest[place] for place in places}
