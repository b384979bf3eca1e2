"""The dead letters of one share partition on their way: from records that are ARCHIVING to their archival.

Responsible for the order, for how many letters are under way, and for the archival of many records with one write. Not
responsible for the states of records (share_partitions/), nor for the writing of letters (`DeadLetterWriter`).

Invariants: letters are given to the writer in a later turn of the loop than the one that reported them, so the answer
to the acknowledgement goes first. Records are archived after the promise of their letters has its result, whatever
became of the letters. After `stop` nothing is written or archived: the next leader finds the records ARCHIVING.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters

if TYPE_CHECKING:
    from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
    from pykbroker.net.promise import Promise
    from pykbroker.share_leaders.dead_letters import DeadLetterWriter
    from pykbroker.share_partitions.delivery_states import DeadRange
    from pykbroker.share_partitions.state_changes import DeliveryWrite

#: the most calls of the writer under way for one share partition, those whose records are not archived yet included
MOST_UNDER_WAY: Final = 16
#: From this number of waiting ranges on, no more records are acquired. The records in flight do not bound them, because
#: the start of the log may pass records whose letters wait.
MOST_WAITING: Final = 10_000


class DeadLetterFlow:
    """The letters of one leader. `archive` takes first and last offsets, ascending, and returns a promise that has its
    result when the outcome of the write is known. `became_idle` is called each time that nothing is left to do."""

    __slots__ = (
        "_archive",
        "_became_idle",
        "_is_stopped",
        "_key",
        "_loop",
        "_outcomes",
        "_stores",
        "_turn",
        "_under_way",
        "_waiting",
        "_writer",
        "_written",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        key: SharePartitionKey,
        writer: DeadLetterWriter,
        archive: Callable[[Sequence[tuple[int, int]]], Promise],
        became_idle: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._key = key
        self._writer = writer
        self._archive = archive
        self._became_idle = became_idle
        self._waiting: deque[DeadRange] = deque()
        self._under_way = 0
        #: the ranges whose letters are written, and whose archival has not begun
        self._written: list[tuple[int, int]] = []
        #: how many writes that store records as archiving have no outcome yet
        self._stores = 0
        #: how many writes of archived records have no outcome yet
        self._outcomes = 0
        self._turn: asyncio.Handle | None = None
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        """True if no letter waits, is under way, or may come from a write that is out, and the archival of all records
        before has its outcome."""
        return not (self._stores or self._waiting or self._under_way or self._outcomes)

    @property
    def has_room(self) -> bool:
        """False if so many letters wait that no more records may be acquired."""
        return len(self._waiting) < MOST_WAITING

    def expect(self, write: DeliveryWrite) -> None:
        """Note that a write is sent. If it stores records as archiving, their letters follow."""
        self._stores += bool(write.dead)

    def stored(self, write: DeliveryWrite) -> None:
        """Note that the outcome of a write is known, and its letters are added."""
        if write.dead:
            self._stores -= 1
            self._look()

    def add(self, dead: Sequence[DeadRange]) -> None:
        """Have letters of these records written, from the next turn of the loop on, and the records archived then."""
        if dead and not self._is_stopped:
            self._waiting.extend(dead)
            self._soon()

    def stop(self) -> None:
        """Forget all letters, because the leader has left. Calls of the writer that are under way go on."""
        self._is_stopped = True
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._turn = None
        if self._written:
            written, self._written = sorted(self._written), []
            self._under_way -= len(written)
            self._outcomes += 1
            self._archive(written).add_done_callback(self._archived)
        while self._waiting and self._under_way < MOST_UNDER_WAY:
            first, last, count, is_rejected = self._waiting.popleft()
            self._under_way += 1
            group, topic_id, partition = self._key
            cause = DeadLetterCause.REJECTED if is_rejected else DeadLetterCause.DELIVERY_LIMIT
            letters = DeadLetters(group, topic_id, partition, first, last, count, cause)
            self._writer.write(letters).add_done_callback(partial(self._letters_ended, (first, last)))

    def _letters_ended(self, offsets: tuple[int, int], promise: Promise) -> None:
        if not self._is_stopped:
            self._written.append(offsets)
            self._soon()

    def _archived(self, promise: Promise) -> None:
        self._outcomes -= 1
        self._look()

    def _look(self) -> None:
        if self.is_idle:
            self._became_idle()
