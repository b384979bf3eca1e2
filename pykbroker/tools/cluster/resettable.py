"""The offsets of one group that a reset changes: committed offsets of consumers, or start offsets of a share group.

Responsible for what a group has in each partition and for setting it. Not responsible for the new offsets
(reset_targets.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from pykbroker.tools.cluster import groups, share_groups
from pykbroker.tools.cluster.asked_cluster import AskedCluster, PartitionName
from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.groups import KnownOffset
from pykbroker_wire.errors import ErrorCode

#: A group that does not exist, or that no share group can be, because its coordinator serves none.
_NO_SHARE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class Resettable(Protocol):
    """The offsets of a group. Every method raises AskFailed."""

    def active_state(self) -> str | None:
        """Return the state of a group that has members, whose offsets cannot be set, or None."""

    def known(self, places: Collection[PartitionName] | None) -> dict[PartitionName, KnownOffset | None]:
        """Return what the group has in these partitions, or in each of its partitions if `places` is None. It is None,
        or missing, in a partition that the group has not begun to read."""

    def set(self, offsets: Mapping[PartitionName, int]) -> None: ...


class CommittedOffsets:
    """The committed offsets of a consumer group."""

    def __init__(self, cluster: AskedCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def active_state(self) -> str | None:
        return groups.active_states(self._cluster, [self._group])[self._group]

    def known(self, places: Collection[PartitionName] | None) -> dict[PartitionName, KnownOffset | None]:
        # The coordinator of a consumer group has all offsets in its memory, so one request asks for all.
        found = groups.committed(self._cluster, self._group)
        wanted = found if places is None else set(places)
        return {place: at for place, at in found.items() if place in wanted}

    def set(self, offsets: Mapping[PartitionName, int]) -> None:
        groups.commit(self._cluster, self._group, {place: KnownOffset(at) for place, at in offsets.items()})


class ShareStarts:
    """The start offsets of a share group. To set one also ends what the group holds of the partition."""

    def __init__(self, cluster: AskedCluster, group: str, *, is_new: bool = False) -> None:
        """`is_new`: the group does not exist yet."""
        self._cluster = cluster
        self._group = group
        self._is_new = is_new

    def active_state(self) -> str | None:
        return share_groups.active_state(self._cluster, self._group)

    def known(self, places: Collection[PartitionName] | None) -> dict[PartitionName, KnownOffset | None]:
        if self._is_new:
            return {}

        # Each start offset is read from a share coordinator, and each lag from a leader.
        def attempt() -> dict[PartitionName, KnownOffset | None]:
            found: dict[PartitionName, KnownOffset | None] = {}
            for place, at in share_groups.positions(self._cluster, self._group, places).items():
                if isinstance(at, AskFailed):
                    raise at
                found[place] = None if at.start is None else KnownOffset(at.start, at.leader_epoch)
            return found

        return self._cluster.settled(attempt)

    def set(self, offsets: Mapping[PartitionName, int]) -> None:
        share_groups.alter_starts(self._cluster, self._group, offsets)


def resettable(cluster: AskedCluster, group: str, *, is_share: bool) -> Resettable:
    """Return the offsets of a group. `is_share`: a group that does not exist yet becomes a share group. Raises
    AskFailed."""
    found = share_groups.described(cluster, [group])[group]
    if not isinstance(found, AskFailed):
        return ShareStarts(cluster, group)
    if found.code not in _NO_SHARE_GROUP:
        raise found
    return ShareStarts(cluster, group, is_new=True) if is_share else CommittedOffsets(cluster, group)
