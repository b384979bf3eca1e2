"""Listens to the quorum and keeps the newest committed image; tells publishers what changed.

committed values -> delta -> image -> publishers, in the order in which they were added. One path for live and start-up.
Registers with the quorum once; several parts of a node share one loader.

Invariants:
- `image` only ever holds whole transactions (KIP-868): between BeginTransaction and EndTransaction nothing is
  published, and after AbortTransaction nothing of it ever is.
- A publisher sees each change exactly once. One that is added late is first given everything as one delta from the
  empty image.
- Publishing is synchronous; `image` is set before the first publisher is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.records import decode_record
from pykbroker.metadata.replay import Change, MetadataReplay
from pykbroker.metadata.snapshot import snapshot_values

logger = logging.getLogger(__name__)


class Publisher(Protocol):
    """Told of every committed change, in order."""

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None: ...


class SnapshotWriter(Protocol):
    """The quorum's side of a snapshot."""

    def write_snapshot(self, offset: int, epoch: int, values: Iterable[bytes]) -> object: ...


class MetadataLoader:
    """A MetadataListener of the quorum (docs/architecture.md 3.5)."""

    def __init__(self, publishers: Iterable[Publisher] = ()) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.leader_id: int | None = None
        self.leader_epoch = -1
        #: last offset that was handed in, inside an unfinished transaction too
        self.last_offset = -1
        #: offset of the image with which a finalised level changed last; -1 before the first
        self.features_offset = -1
        self._publishers: list[Publisher] = list(publishers)
        self._leader_watchers: list[Callable[[int | None, int], None]] = []
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        self._replay = MetadataReplay()

    # Publishers.

    def add_publisher(self, publisher: Publisher, *, catch_up: bool = True) -> None:
        """`catch_up`: first tell it everything that is known."""
        self._publishers.append(publisher)
        if catch_up and self.image is not EMPTY_IMAGE:
            publisher.publish(MetadataDelta.of_everything(self.image), EMPTY_IMAGE, self.image)

    def remove_publisher(self, publisher: Publisher) -> None:
        self._publishers.remove(publisher)

    def on_leader(self, callback: Callable[[int | None, int], None]) -> None:
        """`callback(leader_id, epoch)` at every change of the quorum's leader."""
        self._leader_watchers.append(callback)

    def when_at(self, offset: int) -> asyncio.Future[None]:
        """Done once everything up to and including `offset` is in `image` and published."""
        return self.when(lambda image: image.offset >= offset)

    def when(self, condition: Callable[[MetadataImage], bool]) -> asyncio.Future[None]:
        """Done once the condition holds, after publishing."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if condition(self.image):
            future.set_result(None)
        else:
            self._waiters.append((condition, future))
        return future

    # MetadataListener.

    def handle_commit(self, base_offset: int, epoch: int, timestamp_ms: int, values: list[bytes]) -> None:
        """One committed batch; `values` are consecutive from `base_offset`."""
        records = map(decode_record, values)
        self.last_offset = max(self.last_offset, base_offset + len(values) - 1)
        for change in self._replay.batch(self.image, records, base_offset, epoch, timestamp_ms):
            self._publish(change)

    def handle_snapshot(self, offset: int, epoch: int, values: Iterator[bytes]) -> None:
        """A snapshot that holds everything up to and including `offset`; replaces what is known."""
        delta = MetadataDelta(self.image, whole=True)
        for value in values:
            delta.replay(decode_record(value))
        delta.replace_everything()
        self._replay.restart()
        self.last_offset = offset
        self._publish(Change(delta, delta.apply(offset, epoch)))

    def handle_leader(self, leader_id: int | None, epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = epoch
        for watcher in self._leader_watchers:
            watcher(leader_id, epoch)

    # Snapshots.

    def write_snapshot(self, quorum: SnapshotWriter) -> object:
        """Hand the newest image to the quorum as a snapshot; it may read it on a thread, since it does not change."""
        image = self.image
        if image.offset < 0:
            return None
        return quorum.write_snapshot(image.offset, image.epoch, snapshot_values(image))

    def _publish(self, change: Change) -> None:
        delta, old = change.delta, self.image
        new = self.image = change.image
        if delta.features_changed:
            self.features_offset = new.offset
        for publisher in tuple(self._publishers):
            try:
                publisher.publish(delta, old, new)
            except Exception:
                # One part's bug must not keep the others from learning what the cluster looks like.
                logger.exception("Publishing the metadata image at offset %d to %r failed", new.offset, publisher)
        if self._waiters:
            self._wake(new)

    def _wake(self, image: MetadataImage) -> None:
        waiting, self._waiters = self._waiters, []
        for condition, future in waiting:
            if future.done():
                continue
            if condition(image):
                future.set_result(None)
            else:
                self._waiters.append((condition, future))
