"""The start offset of each leader epoch: `leader-epoch-checkpoint`.

Responsible for the answer to OffsetForLeaderEpoch and the divergence of a follower (KIP-101, KIP-320). Pure:
partition_log.py writes the file when `dirty` is set.

Invariants: epochs and start offsets both strictly increase; no entry starts at or after the log's end; the first entry
starts no earlier than the log's start.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

UNDEFINED = -1


class LeaderEpochs:
    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        # Tuples, because they change rarely, most are short, and a node has thousands of them.
        self._epochs: tuple[int, ...] = ()
        self._starts: tuple[int, ...] = ()
        self.dirty = False
        for epoch, start in entries or []:
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`. Older entries that contradict it go, as in Kafka."""
        if epoch < 0 or start_offset < 0:
            return
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return
        kept = len(epochs)
        while kept and (epochs[kept - 1] >= epoch or starts[kept - 1] >= start_offset):
            kept -= 1
        self._epochs, self._starts = (*epochs[:kept], epoch), (*starts[:kept], start_offset)
        self.dirty = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `epoch`, and the offset at which the next one begins; (-1, -1)
        if unknown."""
        if epoch == UNDEFINED or not self._epochs:
            return UNDEFINED, UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED, UNDEFINED
        if higher == 0:
            # Older than any epoch in the log: it ended where the oldest known one begins.
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def of_offset(self, offset: int) -> int:
        found = bisect_right(self._starts, offset) - 1
        return self._epochs[found] if found >= 0 else UNDEFINED

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_end(self, offset: int) -> None:
        kept = bisect_left(self._starts, offset)
        if kept < len(self._starts):
            self._epochs, self._starts = self._epochs[:kept], self._starts[:kept]
            self.dirty = True

    def truncate_start(self, offset: int) -> None:
        """The log now starts at `offset`: entries before it go, and the entry that contains it starts there."""
        found = bisect_right(self._starts, offset) - 1
        if found < 0 or (found == 0 and self._starts[0] == offset):
            return
        self._epochs, self._starts = self._epochs[found:], (offset, *self._starts[found + 1 :])
        self.dirty = True

    def clear(self) -> None:
        if self._epochs:
            self._epochs = self._starts = ()
            self.dirty = True
