"""The part of a node's metadata replica that would survive a power loss now: its vote, and the end of its log.

Reads what the memory disk has synced, and not what the node believes to be synced.
"""

from __future__ import annotations

from typing import Any

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_raft.election_state import ElectionState
from tests.simulation.invariants.shadow import StoredBatch, parse

FOLDER = "/data/__cluster_metadata-0"


class DurableQuorum:
    """The durable state of one node. A power loss may replace its disk."""

    def __init__(self) -> None:
        self._disk: MemoryDisk | None = None
        self._folder: Any = None
        # The file that the vote was last read from, its synced size, and the vote.
        self._election: tuple[Any, int, ElectionState | None] = (None, -1, None)
        # By file: how far it was read, the last batch with its position, and the position of the next one.
        self._read: dict[int, tuple[int, StoredBatch | None, int]] = {}

    def on(self, disk: MemoryDisk) -> None:
        """Use the disk that the node has now."""
        if disk is not self._disk:
            self._disk = disk
            self._folder = None
            self._read.clear()
            self._election = (None, -1, None)

    def _entries(self) -> dict[str, Any]:
        if self._disk is None:
            return {}  # the others may commit before this node has opened its log for the first time
        if self._folder is None:
            self._folder = self._disk.tree.find(FOLDER)
        return {} if self._folder is None else self._folder.synced

    def election(self) -> ElectionState | None:
        """Return what a start after a power loss would find in quorum-state."""
        node = self._entries().get("quorum-state")
        if node is None:
            return None
        seen, size, state = self._election
        if seen is not node or size != len(node.synced):
            state = ElectionState.from_bytes(bytes(node.synced)) if node.synced else None
            self._election = (node, len(node.synced), state)
        return state

    def end(self) -> int:
        """Return the offset before which the log is durable."""
        entries = self._entries()
        files = sorted(name for name in entries if name.endswith(".log"))
        end = 0
        for name in files:
            base = int(name.removesuffix(".log"))
            if end and base > end:
                break  # the offsets between are not durable
            end = self._end_of(entries[name], base)
        return end

    def end_kept(self) -> int:
        """Return the offset before which the log is durable and the process has not begun to cut it."""
        cut = self._entries()
        files = {int(name.removesuffix(".log")): cut[name] for name in sorted(cut) if name.endswith(".log")}
        end = self.end()
        for base, node in files.items():
            position, written = 0, base
            while (batch := parse(node.data, position, len(node.data))) is not None and batch.size > 12:
                position, written = position + batch.size, batch.next
            if position < len(node.synced):
                return min(end, written)
        return end

    def _end_of(self, node: Any, base: int) -> int:
        position, last, end = self._read.get(node.file_id, (0, None, base))
        data = node.synced
        if last is not None:
            again = parse(data, position - last.size, len(data)) if position <= len(data) else None
            if again is None or not again.is_same(last):
                position, last, end = 0, None, base
        while position < len(data):
            batch = parse(data, position, len(data))
            if batch is None or batch.size <= 12:
                break
            position += batch.size
            last, end = batch, batch.next
        self._read[node.file_id] = position, last, end
        return end
