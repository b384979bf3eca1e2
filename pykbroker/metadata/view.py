"""The newest metadata as one event loop sees it: the image, the quorum's leader, and the publishers of changes.

Responsible for calling the publishers in the order in which they were added. Not responsible for the source of a
change: loader.py replays the metadata log, and the broker half gets what the loader has published.

Invariants:
- A publisher sees each change exactly once. If it is added late, it first gets everything as one delta from the empty
  image.
- Publishing is synchronous; `image` is set before the first publisher is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.replay import Change

logger = logging.getLogger(__name__)


class Publisher(Protocol):
    """Called with each committed change, in order."""

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None: ...


class MetadataView:
    """The metadata of one loop. Parts of the node read `image` and the leader, and register for changes."""

    def __init__(self, publishers: Iterable[Publisher] = ()) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.leader_id: int | None = None
        self.leader_epoch = -1
        #: the offset of the image in which a finalised level changed last, -1 before the first
        self.features_offset = -1
        self._publishers: list[Publisher] = list(publishers)
        self._leader_watchers: list[Callable[[int | None, int], None]] = []
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []

    # -- for the parts of the loop

    def add_publisher(self, publisher: Publisher, *, catch_up: bool = True) -> None:
        """Call the publisher with each change. If `catch_up` is True, first call it with the whole present image."""
        self._publishers.append(publisher)
        if catch_up and self.image is not EMPTY_IMAGE:
            publisher.publish(MetadataDelta.of_everything(self.image), EMPTY_IMAGE, self.image)

    def on_leader(self, callback: Callable[[int | None, int], None]) -> None:
        """Call `callback(leader_id, epoch)` at each change of the quorum's leader."""
        self._leader_watchers.append(callback)

    def when(self, condition: Callable[[MetadataImage], bool]) -> asyncio.Future[None]:
        """Return a future that is done once the condition holds, after publishing."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if condition(self.image):
            future.set_result(None)
        else:
            self._waiters.append((condition, future))
        return future

    # -- for the source of the changes

    def take(self, change: Change) -> None:
        """Take a change, and call all publishers. `change.delta` leads from `image` to `change.image`."""
        delta, old = change.delta, self.image
        new = self.image = change.image
        if delta.features_changed:
            self.features_offset = new.offset
        for publisher in tuple(self._publishers):
            try:
                publisher.publish(delta, old, new)
            except Exception:
                # A bug of one part must not stop the other parts from getting the metadata.
                logger.exception("Publishing the metadata image at offset %d to %r failed", new.offset, publisher)
        if self._waiters:
            self._wake(new)

    def change_leader(self, leader_id: int | None, epoch: int) -> None:
        """Take another leader of the quorum, or none, and call the callbacks of `on_leader`."""
        self.leader_id = leader_id
        self.leader_epoch = epoch
        for watcher in self._leader_watchers:
            watcher(leader_id, epoch)

    def _wake(self, image: MetadataImage) -> None:
        waiting, self._waiters = self._waiters, []
        for condition, future in waiting:
            if future.done():
                continue
            if condition(image):
                future.set_result(None)
            else:
                self._waiters.append((condition, future))
