"""A change of many records that goes on in turns, and what has to be written to the share coordinator for it.

One request may acknowledge 100,000 ranges. A loop that works through them at once would hold every other client for a
tenth of a second, so a change stops after each part of its work until `go_on` is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykbroker.share_partitions.delivery_states import DeadRange, DeliveryRange
from pykbroker_wire.errors import ErrorCode


class DeliveryWrite:
    """A WriteShareGroupState of one partition, without its epochs.

    `start` and `delivered` are StartOffset and DeliveryCompleteCount. `ranges` are ascending, and equal neighbours are
    one range. Several writes that were joined (share_leaders/state_writes.py) have several ascending runs. `is_awaited`
    is True if records wait for the outcome (`SharePartition.persisted`); without it the write is a best effort, and no
    state depends on it.

    `dead` are the records of it that become ARCHIVING. Their letters are written when the write has ended: of a write
    that is awaited, those that `SharePartition.persisted` returns; of a best effort, all.
    """

    __slots__ = ("dead", "delivered", "is_awaited", "ranges", "start")

    def __init__(self, *, is_awaited: bool) -> None:
        self.start = 0
        self.delivered = 0
        self.ranges: list[DeliveryRange] = []
        self.dead: list[DeadRange] = []
        self.is_awaited = is_awaited

    def add(self, first: int, last: int, state: int, delivery_count: int) -> None:
        """Add a range; it becomes one with the range before it if their state and count are equal."""
        ranges = self.ranges
        if ranges:
            before = ranges[-1]
            if before.last + 1 == first and before.state == state and before.delivery_count == delivery_count:
                ranges[-1] = DeliveryRange(before.first, last, state, delivery_count)
                return
        ranges.append(DeliveryRange(first, last, state, delivery_count))


class StateChange:
    """A change in turns. Its maker has begun it; its user calls `go_on`, once in each turn of the loop, until
    `is_whole`. A change that was begun has to be ended, because its records are not free before.

    When it is whole, `error` is the refusal of an acknowledgement, and nothing of it is kept but renewals. Otherwise
    `write` has to be sent to the share coordinator, unless it is None. `frees` is True if records have become
    available or the start has moved, so that parked fetches can go on.

    `dead` are records that are ARCHIVING now, so that their letters have to be written (`SharePartition.archive`).
    """

    __slots__ = ("_work", "dead", "error", "frees", "is_whole", "write")

    def __init__(self) -> None:
        self.error: ErrorCode | None = None
        self.write: DeliveryWrite | None = None
        self.dead: list[DeadRange] = []
        self.frees = False
        self.is_whole = False
        self._work: Iterator[None] = iter(())

    def begin(self, work: Iterator[None]) -> StateChange:
        """Do the first part. `work` gives way after each part."""
        self._work = work
        self.go_on()
        return self

    def go_on(self) -> bool:
        """Do the next part. Return True if it was the last."""
        if not self.is_whole and next(self._work, _WHOLE) is _WHOLE:
            self.is_whole = True
        return self.is_whole


_WHOLE: Final = object()
