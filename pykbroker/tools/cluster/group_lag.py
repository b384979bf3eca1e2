"""The position of a group in each partition that its members read, or for which it has a committed offset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.tools.cluster import groups, log_offsets
from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.groups import GroupDescription, GroupMember, KnownOffset


@dataclass(slots=True, frozen=True)
class GroupPosition:
    """One partition of a group."""

    topic: str
    partition: int
    #: None if nothing is committed
    committed: KnownOffset | None
    #: the end of the partition, or None if it is unknown
    end: int | None
    #: the member that reads it, or None if no member does
    owner: GroupMember | None

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed offset to the end, or None if one of these two is unknown."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def total_lags(cluster: AskedCluster, ids: Iterable[str]) -> dict[str, int | None]:
    """Return the lag of each group over the partitions that it has committed offsets of, or None if it has committed
    none, or if it is unknown."""
    known = groups.committed_by_group(cluster, ids)
    offsets = {group: found for group, found in known.items() if not isinstance(found, AskFailed)}
    places = sorted({place for found in offsets.values() for place in found})
    try:
        ends = log_offsets.found(cluster, dict.fromkeys(places, log_offsets.LATEST))
    except AskFailed:
        # The client may not see a topic of a group.
        return dict.fromkeys(known)
    last = {place: end.offset for place, end in ends.items() if isinstance(end, log_offsets.TimedOffset)}
    lags = {
        group: [last[place] - at.offset for place, at in found.items() if place in last]
        for group, found in offsets.items()
    }
    return {group: sum(lags[group]) if lags.get(group) else None for group in known}


def positions(cluster: AskedCluster, group: GroupDescription) -> list[GroupPosition]:
    """Return every partition with a committed offset or a member; partitions with a member come first."""
    known = groups.committed(cluster, group.id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*known, *owners})
    ends = log_offsets.found(cluster, dict.fromkeys(partitions, log_offsets.LATEST))
    found = []
    for place in sorted(partitions, key=lambda place: (place not in owners, place)):
        end = ends.get(place)
        found.append(
            GroupPosition(
                *place,
                known.get(place),
                end.offset if isinstance(end, log_offsets.TimedOffset) else None,
                owners.get(place),
            )
        )
    return found
