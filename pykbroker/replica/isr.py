"""The leader's view of the in-sync replicas of its partition, with the change that it has requested (KIP-497); pure.

Responsible for the committed set, the change in flight, and the maximal set that includes both. Not responsible for
which replica is in sync (leader.py), nor for asking the controller, which alone decides (isr_updates.py).

committed --propose_expansion, propose_shrinking--> in flight --settle, withdraw--> committed

Invariants:
* One change is in flight at most.
* The maximal set has each replica that may be in the controller's ISR now. A replica that leaves is in the maximal set
  until the controller confirms that; a replica that joins is in it at once.
* The partition epoch never goes down in a leader epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


class Direction(Enum):
    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(slots=True, frozen=True, eq=False)
class PendingIsr:
    """A change that was requested from the controller: the complete new set, and the partition epoch on which the
    request is based."""

    direction: Direction
    replicas: tuple[int, ...]
    partition_epoch: int


class Isr:
    """The ISR in one leader epoch."""

    __slots__ = ("committed", "maximal", "partition_epoch", "pending")

    def __init__(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        #: the ISR that the controller has confirmed
        self.committed = committed
        #: the high watermark and acks=all wait for these replicas
        self.maximal = committed
        self.partition_epoch = partition_epoch
        self.pending: PendingIsr | None = None

    def propose_expansion(self, replica: int) -> PendingIsr:
        """Propose that the replica joins. The replica is in the maximal set from now on, which does no harm if the
        change fails."""
        assert replica not in self.committed
        pending = self._propose(Direction.EXPAND, (*self.committed, replica))
        self.maximal = pending.replicas
        return pending

    def propose_shrinking(self, leaving: Collection[int]) -> PendingIsr:
        """Propose that these replicas leave. They stay in the maximal set until the controller has agreed, because it
        might refuse."""
        staying = tuple(replica for replica in self.committed if replica not in leaving)
        assert 0 < len(staying) < len(self.committed)
        return self._propose(Direction.SHRINK, staying)

    def _propose(self, direction: Direction, replicas: tuple[int, ...]) -> PendingIsr:
        assert self.pending is None, self.pending
        self.pending = PendingIsr(direction, replicas, self.partition_epoch)
        return self.pending

    def settle(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        """Take the set that the controller has sent, in its answer or in the metadata. It ends the change in flight."""
        assert partition_epoch >= self.partition_epoch
        self.committed = self.maximal = committed
        self.partition_epoch = partition_epoch
        self.pending = None

    def withdraw(self) -> None:
        """End a change that the controller has certainly not made and never will make. The committed set stays as it
        is."""
        self.maximal = self.committed
        self.pending = None
