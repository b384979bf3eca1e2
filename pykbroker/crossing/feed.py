"""The metadata on its way from the loader to the broker half; its amount is bounded even if the broker half stands
still.

A publisher of the loader, on the control loop. It hands changes over one by one. While `MOST_CHANGES` of them, or
`MOST_BYTES` of their records, wait to be taken, no more changes are handed over. When the receiver has taken all
waiting messages, it gets the newest image as a whole. Responsible for the choice between change and image, and for the
progress of the receiver. Not responsible for applying the changes (broker_end.py). Pure.

Invariants
* At most `MOST_CHANGES` messages wait. Their records have at most `MOST_BYTES`, unless a single message is larger.
* The receiver gets each change of the leader, and the end of the initial load, in their order among the changes. A
  receiver that was too slow gets the newest leader after the image.
* `seen_offset` is never beyond the changes that the receiver's publishers have got.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from pykbroker.crossing.loop_messages import (
    AnotherLeader,
    InitialLoadCompleted,
    MetadataChanged,
    MetadataReplaced,
    ToBroker,
)
from pykbroker.metadata.delta import MetadataDelta
from pykbroker.metadata.image import EMPTY_IMAGE, MetadataImage
from pykbroker.metadata.loader import MetadataLoader
from pykbroker.metadata.replay import Change

MOST_CHANGES: Final = 1_000
MOST_BYTES: Final = 16 << 20


class MetadataFeed:
    """Call `start` once. The receiver may get `InitialLoadCompleted` twice."""

    def __init__(self, loader: MetadataLoader, put: Callable[[ToBroker], None], moved: Callable[[], None]) -> None:
        """`put` hands a message over. `moved` is called whenever `seen_offset` may have grown."""
        self._loader = loader
        self._put = put
        self._moved = moved
        #: offset and bytes of each message that the receiver has not taken, oldest first
        self._waiting: deque[tuple[int, int]] = deque()
        self._waiting_bytes = 0
        self._seen_offset = -1
        #: the bytes of all records that the loader had got when the last message was put
        self._counted_bytes = 0
        #: True if changes were left out; the receiver gets them as one image when it has caught up
        self._is_behind = False
        self._has_loaded = False

    @property
    def seen_offset(self) -> int:
        """The offset up to which the broker half has the metadata; its heartbeats report it to the controller."""
        # If nothing waits, the loader's offset counts. It includes an unfinished transaction of the metadata log, which
        # no image shows.
        return self._seen_offset if self._waiting or self._is_behind else self._loader.last_offset

    def start(self) -> None:
        """Hand over the present metadata, and from now on its changes."""
        self._loader.add_publisher(self, catch_up=False)
        self._loader.on_leader(self._leader_changed)
        if self._loader.image is not EMPTY_IMAGE:
            self._replace()
        if self._loader.leader_epoch >= 0:
            self._leader_changed(self._loader.leader_id, self._loader.leader_epoch)

    def initial_load_completed(self) -> None:
        """Hand over that all metadata that was committed at this node's start is loaded."""
        self._has_loaded = True
        self._hand_over(InitialLoadCompleted(), self._loader.last_offset)

    def publish(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Hand over a change (called by the loader)."""
        # The loader may have got more changes than this one, so the offset of this change is the offset of its image.
        self._hand_over(MetadataChanged(Change(delta, new)), new.offset)

    def taken(self) -> None:
        """The receiver has taken the oldest waiting message."""
        self._seen_offset, size = self._waiting.popleft()
        self._waiting_bytes -= size
        if self._is_behind and not self._waiting:
            self._is_behind = False
            self._replace()
            self._leader_changed(self._loader.leader_id, self._loader.leader_epoch)
            if self._has_loaded:
                self._hand_over(InitialLoadCompleted(), self._loader.last_offset)
        self._moved()

    def _leader_changed(self, leader_id: int | None, epoch: int) -> None:
        self._hand_over(AnotherLeader(leader_id, epoch), self._loader.last_offset)

    def _replace(self) -> None:
        self._hand_over(MetadataReplaced(self._loader.image), self._loader.last_offset)

    def _hand_over(self, message: ToBroker, offset: int) -> None:
        """`offset`: the offset up to which the receiver has the metadata when it has taken `message`."""
        if self._is_behind:
            return
        size = self._loader.bytes_handed - self._counted_bytes
        if self._waiting and (len(self._waiting) >= MOST_CHANGES or self._waiting_bytes + size > MOST_BYTES):
            self._is_behind = True
            return
        self._counted_bytes += size
        self._waiting.append((offset, size))
        self._waiting_bytes += size
        self._put(message)
