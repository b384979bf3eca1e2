"""One member of a share group (KIP-932) as a value.

Not responsible for the group (share_group.py), nor for what a member gets (share_target.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

#: The epoch with which a member joins, and the one with which it leaves.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

#: topic id -> partitions
SharedPartitions = Mapping[bytes, frozenset[int]]

NO_PARTITIONS: Final[SharedPartitions] = {}


class ShareMember(NamedTuple):
    """One member, as a value: `_replace` makes the next one.

    A member moves to its target at once, because members may share a partition and none waits for another."""

    member_id: str
    #: the epoch of the target that the member has; 0 until it has one
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: SharedPartitions = NO_PARTITIONS
