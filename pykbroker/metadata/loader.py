"""Takes committed records from the quorum, keeps the newest committed image, and notifies publishers of changes.

committed values -> delta -> image -> publishers, in the order in which they were added. Start-up and live operation
take the same path. The loader registers with the quorum once. It is responsible for the meaning of a batch and a
snapshot of the quorum. Not responsible for notifying publishers (view.py).

Invariant: `image` only has whole transactions (KIP-868). Between BeginTransaction and EndTransaction nothing is
published, and a transaction that AbortTransaction ends is never published.
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
    """The part of the quorum that writes snapshots."""

    def write_snapshot(self, offset: int, epoch: int, values: Iterable[bytes]) -> object: ...


class MetadataLoader(MetadataView):
    """The MetadataListener of the quorum that keeps the image."""

    def __init__(self, publishers: Iterable[Publisher] = ()) -> None:
        super().__init__(publishers)
        #: the last offset that was passed in, even inside an unfinished transaction
        self.last_offset = -1
        #: the size of all values that were passed in
        self.bytes_handed = 0
        self._replay = MetadataReplay()

    # MetadataListener.

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None:
        """Take one committed batch. `values` have consecutive offsets from `base_offset`."""
        records = map(decode_record, values)
        self.bytes_handed += sum(map(len, values))
        self.last_offset = max(self.last_offset, base_offset + len(values) - 1)
        for change in self._replay.batch(self.image, records, base_offset, epoch, timestamp_ms):
            self.take(change)

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None:
        """Take a snapshot of all records up to and including `offset`. It replaces the image."""
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
        """Pass the newest image to the quorum as a snapshot. The quorum may read it on a thread, because it does not
        change."""
        image = self.image
        if image.offset < 0:
            return None
        return quorum.write_snapshot(image.offset, image.epoch, snapshot_values(image))
