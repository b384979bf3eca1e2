"""Arithmetic of a partition's replica set; pure.

Not responsible for who is in the set (the controller decides, KIP-497) nor for when it is computed (partition.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def high_watermark(
    current: int, leader_end: int, followers: Mapping[int, int], in_sync: Iterable[int], leader_id: int
) -> int:
    """The offset up to which every in-sync replica has the log; never moves back.

    `followers` maps replica ids to the log end offset that their last fetch proved; one that has not fetched in this
    leader epoch has proved nothing.
    """
    lowest = leader_end
    for replica in in_sync:
        if replica != leader_id:
            lowest = min(lowest, followers.get(replica, 0))
    return max(current, lowest)
