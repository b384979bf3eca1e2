"""The committed records of one log: the prefix on which all replicas must agree, and the batches that were ever written
in each leader epoch.

Invariants: the prefix only grows, except by `give_up`, which is called when the loss of records is allowed.
"""

from __future__ import annotations

from bisect import bisect_right

from tests.simulation.invariants.broken import InvariantBroken
from tests.simulation.invariants.shadow import Shadow, StoredBatch


class Ledger:
    """The ledger of the metadata log, or of one partition."""

    def __init__(self, name: str, matching_rule: str) -> None:
        """`matching_rule` is the id of the invariant that one offset and one epoch have one batch."""
        self.name = name
        self.batches: list[StoredBatch] = []
        #: the offset before which everything is committed
        self.end = 0
        #: losses that are allowed: (first offset, end, leader epoch that lacks them)
        self.lost: list[tuple[int, int, int]] = []
        #: its records are compacted, so a log may lack some of them
        self.is_compacted = False
        self._matching_rule = matching_rule
        self._written: dict[tuple[int, int], tuple[StoredBatch, int]] = {}

    def note(self, node: int, batch: StoredBatch) -> None:
        """Record that a node's log has this batch now; checks log matching."""
        key = batch.base, batch.epoch
        known = self._written.get(key)
        if known is None:
            self._written[key] = batch, node
        elif known[0].crc != batch.crc and known[0].size == batch.size:
            # A batch that compaction has changed is smaller.
            raise InvariantBroken(
                self._matching_rule,
                f"{self.name}: node {node} has {batch} where node {known[1]} has written {known[0]}",
            )

    def index_of(self, offset: int) -> int:
        """Return the index of the batch that contains the offset, or of the next one."""
        found = bisect_right(self.batches, offset, key=_base) - 1
        return found if found >= 0 and self.batches[found].next > offset else found + 1

    def extend(self, shadow: Shadow, end: int) -> list[StoredBatch]:
        """Commit the batches of a log before `end`; return the new ones."""
        if end <= self.end:
            return []
        added = []
        for batch in shadow.batches[shadow.index_of(self.end) :]:
            if batch.next > end:
                break
            added.append(batch)
        self.batches += added
        if added:
            self.end = added[-1].next
        return added

    def difference(self, shadow: Shadow, start: int, end: int) -> tuple[StoredBatch, StoredBatch | None] | None:
        """Return the first committed batch from `start` to `end` that a log lacks or has changed, and the log's batch
        there.

        If a batch was compacted, only its offsets and its epoch are compared.
        """
        position = shadow.index_of(start)
        there = shadow.batches
        for batch in self.batches[self.index_of(start) :]:
            if batch.base >= end:
                break
            if batch.base < start or batch.base < shadow.start:
                continue
            while position < len(there) and there[position].base < batch.base:
                position += 1
            found = there[position] if position < len(there) else None
            if found is not None and found.base == batch.base:
                if found.epoch != batch.epoch or (found.size == batch.size and found.crc != batch.crc):
                    return batch, found
            elif shadow.end <= batch.base or (found is None and shadow.end < batch.next):
                return batch, None
            elif not self.is_compacted:
                return batch, found
        return None

    def give_up(self, end: int, epoch: int) -> None:
        """Allow the loss of the records after `end`: the leader of `epoch` does not have them."""
        if end >= self.end:
            return
        self.lost.append((end, self.end, epoch))
        while self.batches and self.batches[-1].next > end:
            self.batches.pop()
        self.end = min(end, self.batches[-1].next) if self.batches else end


def _base(batch: StoredBatch) -> int:
    return batch.base
