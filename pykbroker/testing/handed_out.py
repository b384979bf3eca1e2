"""The epochs and producer ids that clients of a broker or a cluster may have seen, over all states it was put back to.

Responsible for the limits (`metadata/restored.py`), which only rise. Not responsible for copies of a state
(state_copy.py).

* A leader epoch rises by at most one with each record of the metadata log, so the number of records since a state is a
  limit that holds for deleted topics too.
* The newest generations and epochs of groups are read from the coordinators. A group that was deleted, or whose
  coordinator does not run, may have had newer ones, and a group may get one while the state is put back. The margin is
  for these.
* Producer ids only rise. A state that is put back has a lower next id.
"""

from __future__ import annotations

from typing import Final

from pykbroker.metadata.image import MetadataImage
from pykbroker.metadata.restored import Restored
from pykbroker.node.node import Node

_GROUP_MARGIN: Final = 1_000


class HandedOut:
    """Call `note` before a node of a state ends, and then `restored` with the state that replaces it."""

    def __init__(self) -> None:
        self._leader_epoch = -1
        self._group_epoch = 0
        self._producer_id = 0
        #: the end of the metadata log when the present state began
        self._from_offset = 0

    def note(self, image: MetadataImage, newest_epoch: int) -> None:
        """Take the newest metadata of the nodes, and the newest epoch of their groups."""
        records = max(0, image.offset + 1 - self._from_offset)
        self._leader_epoch += records
        self._from_offset += records
        self._group_epoch = max(self._group_epoch, newest_epoch + _GROUP_MARGIN)
        self._producer_id = max(self._producer_id, image.producer_ids_next)

    def restored(self, end_offset: int) -> Restored:
        """Return the limits for a state whose metadata log ends at `end_offset`."""
        self._leader_epoch += 1
        self._producer_id += 1
        self._from_offset = end_offset
        return Restored(
            end_offset=end_offset,
            leader_epoch=self._leader_epoch,
            group_epoch=self._group_epoch,
            producer_id=self._producer_id,
        )


def newest_group_epoch(node: Node) -> int:
    """Return the newest generation or epoch of the groups that a node coordinates. It may be called on any thread, and
    does not wait for the node: the copy of a dict's values is made at once."""
    hosts = node.services.groups.coordinator.hosts()
    return max((group.newest_epoch for host in hosts for group in list(host.shard.groups.values())), default=0)
