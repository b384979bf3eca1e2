"""The offsets of a controller's state, and the state that remains when it loses the leadership; pure.

Apache Kafka's OffsetControlManager does this with snapshots of every table. Here a checkpoint is two references.
Not responsible for the state itself (state.py).

Invariants: `committed_offset` <= `replayed_offset`, and both only rise until `revert` or `begin`. The checkpoint of
`revert` is the state up to the last committed batch.
"""

from __future__ import annotations

from collections import deque

from pykbroker.controller.state import Checkpoint


class OffsetControl:
    """The offsets up to which the state is replayed and committed, -1 before the first record."""

    __slots__ = ("_appended", "_committed", "committed_offset", "replayed_offset")

    def __init__(self, checkpoint: Checkpoint) -> None:
        """`checkpoint`: the state before the first record."""
        self.committed_offset = -1
        self.replayed_offset = -1
        self._committed = checkpoint
        # The last offset of each batch that is not committed yet, and the state up to it. A large operation is several
        # batches.
        self._appended: deque[tuple[int, Checkpoint]] = deque()

    @property
    def is_committed(self) -> bool:
        """True if everything in the state is committed."""
        return self.committed_offset >= self.replayed_offset

    def appended(self, last_offset: int, checkpoint: Checkpoint) -> None:
        """Note that a batch was replayed. `checkpoint` is the state after it."""
        self.replayed_offset = last_offset
        self._appended.append((last_offset, checkpoint))

    def committed(self, last_offset: int) -> None:
        """Note that everything up to this offset is committed."""
        self.committed_offset = max(self.committed_offset, last_offset)
        while self._appended and self._appended[0][0] <= last_offset:
            _, self._committed = self._appended.popleft()

    def begin(self, offset: int, checkpoint: Checkpoint) -> None:
        """Begin with a snapshot that has the records up to `offset`."""
        self._appended.clear()
        self._committed = checkpoint
        self.replayed_offset = self.committed_offset = offset

    def revert(self) -> Checkpoint:
        """Forget the batches that are not committed, and return the state without them."""
        self._appended.clear()
        self.replayed_offset = self.committed_offset
        return self._committed
