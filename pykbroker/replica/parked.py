"""A fetch that waits: for bytes, for an error, or for its deadline (Kafka's DelayedFetch). No polling.

How far it may read decides which bytes it waits for (`Isolation`): an append counts for a follower at once, for a
client when it is committed. Not responsible for reading: when it is worth while it calls back, and the caller reads
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.replica.deadlines import Deadlines
    from pykbroker.replica.partition import Partition


class Isolation(IntEnum):
    """How far a fetch reads (Kafka's FetchIsolation)."""

    #: followers
    LOG_END = 0
    HIGH_WATERMARK = 1
    #: to the last stable offset
    TXN_COMMITTED = 2


def _read_no_more(final: bool) -> Any:
    raise AssertionError("a parked fetch that is done reads no more")


class ParkedFetch:
    """`missing_bytes` must become readable, as far as it may read, before it is worth reading again. Or it waits for
    what is not in memory: then nothing else ends it, its deadline neither, as a read of Apache Kafka waits for
    its disk."""

    __slots__ = (
        "_deadline",
        "_is_late",
        "_is_loading",
        "_missing_bytes",
        "_partitions",
        "_partitions_of",
        "_read",
        "future",
        "isolation",
        "poked",
    )

    def __init__(
        self,
        deadlines: Deadlines,
        partitions: Callable[[], Iterable[Partition]],
        found: int | asyncio.Future[Any],
        wait_seconds: float,
        read: Callable[[bool], Any],
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> None:
        """`read(final)` returns the response or, unless final, how many bytes are still missing in `partitions()`; or a
        future of one of these. `found` is what it has returned already."""
        self.future: asyncio.Future[Any] = deadlines.loop.create_future()
        self._read = read
        self.isolation = isolation
        self._missing_bytes = 0
        #: something has happened to a partition since it was read
        self.poked = False
        self._partitions_of: Callable[[], Iterable[Partition]] | None = partitions
        self._partitions: list[Partition] = []
        self._is_loading = False
        self._is_late = False
        self._deadline = deadlines.after(wait_seconds, self._expire)
        self.future.add_done_callback(self._done)
        self._take(found)

    def poke(self, arrived_bytes: int) -> None:
        """So much has become readable in its partitions since the last time, or something else has happened to them."""
        self.poked = True
        self._missing_bytes -= arrived_bytes
        if self._missing_bytes <= 0 and not self._is_loading:
            self._complete(False)

    def end(self) -> None:
        """Answer now, with what there is."""
        self._expire()

    def _expire(self) -> None:
        self._is_late = True
        if not self._is_loading:
            self._complete(True)

    def _complete(self, final: bool) -> None:
        if self.future.done():
            return
        try:
            found = self._read(final)
        except Exception as error:  # noqa: BLE001  # a bug: this request's alone, others wait for the same partition
            self.future.set_exception(error)
            return
        self._take(found)

    def _take(self, found: Any) -> None:
        if isinstance(found, asyncio.Future):
            self._is_loading = True
            found.add_done_callback(self._loaded)
        elif isinstance(found, int):
            self._missing_bytes = found
            self._watch()
        else:
            self.future.set_result(found)

    def _watch(self) -> None:
        """Be told what happens to the partitions from now on."""
        if self._partitions_of is not None:
            self._partitions = list(self._partitions_of())
            self._partitions_of = None
            for partition in self._partitions:
                partition.fetch_waiters[self] = None

    def _loaded(self, done: asyncio.Future[Any]) -> None:
        self._is_loading = False
        if self.future.done():
            return
        if done.cancelled():
            self.future.cancel()  # the node is stopping
            return
        error = done.exception()
        if error is not None:
            self.future.set_exception(error)
        elif isinstance(done.result(), int):
            # Read a turn ago, or before the deadline: no partition has told of what came since then.
            self._watch()
            self._complete(self._is_late)
        else:
            self.future.set_result(done.result())

    def _done(self, future: asyncio.Future[Any]) -> None:
        # Also when the connection closed and cancelled it: nothing of a parked fetch stays behind.
        self._deadline.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)
        # The reader knows this object: without the circle it goes at once, and not with the next collection.
        self._read = _read_no_more
        self._partitions_of = None
