"""Listens to the quorum and keeps the newest committed image; tells publishers what changed.

committed values -> delta -> image -> publishers, in the order in which they were added. One path for live and start-up.
Registers with the quorum once. Responsible for what a batch and a snapshot of the quorum mean; telling is view.py's.

Invariant: `image` only ever holds whole transactions (KIP-868). Between BeginTransaction and EndTransaction nothing is
published, and after AbortTransaction nothing of it ever is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.records import decode_record
from pykbroker.metadata.replay import Change, MetadataReplay
from pykbroker.metadata.snapshot import snapshot_values
from pykbroker.metadata.view import MetadataView, Publisher


class SnapshotWriter(Protocol):
    """The quorum's side of a snapshot."""

    def write_snapshot(self, offset: int, epoch: int, values: Iterable[bytes]) -> object: ...


class MetadataLoader(MetadataView):
    """A MetadataListener of the quorum (docs/architecture.md 3.5)."""

    def __init__(self, publishers: Iterable[Publisher] = ()) -> None:
        super().__init__(publishers)
        #: last offset that was handed in, inside an unfinished transaction too
        self.last_offset = -1
        #: of all values that were handed in
        self.bytes_handed = 0
        self._replay = MetadataReplay()

    # MetadataListener.

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None:
        """One committed batch; `values` are consecutive from `base_offset`."""
        records = map(decode_record, values)
        self.bytes_handed += sum(map(len, values))
        self.last_offset = max(self.last_offset, base_offset + len(values) - 1)
        for change in self._replay.batch(self.image, records, base_offset, epoch, timestamp_ms):
            self.take(change)

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None:
        """A snapshot that holds everything up to and including `offset`; replaces what is known."""
        delta = MetadataDelta(self.image, whole=True)
        for value in values:
            self.bytes_handed += len(value)
            delta.replay(decode_record(value))
        delta.replace_everything()
        self._replay.restart()
        self.last_offset = offset
        self.take(Change(delta, delta.apply(offset, epoch)))

    def handle_leader(self, leader_id: int | None, epoch: int) -> None:
        self.change_leader(leader_id, epoch)

    # Snapshots.

    def write_snapshot(self, quorum: SnapshotWriter) -> object:
        """Hand the newest image to the quorum as a snapshot; it may read it on a thread, since it does not change."""
        image = self.image
        if image.offset < 0:
            return None
        return quorum.write_snapshot(image.offset, image.epoch, snapshot_values(image))
