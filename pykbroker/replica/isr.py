"""The in-sync replicas of a partition as its leader knows them, with the change that it has asked for (KIP-497); pure.

Responsible for which set is committed, which change is in flight, and the maximal set that both allow. Not responsible
for which replica is in sync (leader.py), nor for asking the controller, which alone decides (isr_updates.py).

committed --propose_expansion, propose_shrinking--> in flight --settle, withdraw--> committed

Invariants:
* One change is in flight at most.
* The maximal set holds every replica that the controller may have in the set by now. A replica that is to leave is in
  it until the controller has said so; one that is to come is in it at once.
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
    """A change that the controller was asked for: the whole new set, and the partition epoch that it follows."""

    direction: Direction
    replicas: tuple[int, ...]
    partition_epoch: int


class Isr:
    """The set of one leader epoch."""

    __slots__ = ("committed", "maximal", "partition_epoch", "pending")

    def __init__(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        #: what the controller has said
        self.committed = committed
        #: the high watermark and acks=all wait for these
        self.maximal = committed
        self.partition_epoch = partition_epoch
        self.pending: PendingIsr | None = None

    def propose_expansion(self, replica: int) -> PendingIsr:
        """The replica is to join. It counts from now on: if the change fails, no harm is done."""
        assert replica not in self.committed
        pending = self._propose(Direction.EXPAND, (*self.committed, replica))
        self.maximal = pending.replicas
        return pending

    def propose_shrinking(self, leaving: Collection[int]) -> PendingIsr:
        """These are to leave. They count until the controller has agreed: it might refuse."""
        staying = tuple(replica for replica in self.committed if replica not in leaving)
        assert 0 < len(staying) < len(self.committed)
        return self._propose(Direction.SHRINK, staying)

    def _propose(self, direction: Direction, replicas: tuple[int, ...]) -> PendingIsr:
        assert self.pending is None, self.pending
        self.pending = PendingIsr(direction, replicas, self.partition_epoch)
        return self.pending

    def settle(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has said what the set is, in its answer or in the metadata. It ends what is in flight."""
        assert partition_epoch >= self.partition_epoch
        self.committed = self.maximal = committed
        self.partition_epoch = partition_epoch
        self.pending = None

    def withdraw(self) -> None:
        """The change was certainly not made, and never will be: the committed set stays."""
        self.maximal = self.committed
        self.pending = None
