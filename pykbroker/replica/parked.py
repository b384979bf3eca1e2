"""A fetch that waits: for bytes, for an error, or for its deadline (Kafka's DelayedFetch). No polling.

Not responsible for reading: when it is worth while it calls back, and the caller reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykbroker.replica.partition import Partition


class ParkedFetch:
    """`missing_bytes` must become readable before it is worth reading again."""

    __slots__ = ("_complete", "_missing", "_partitions", "_seen", "_timer", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Iterable[Partition],
        missing_bytes: int,
        wait_seconds: float,
        complete: Callable[[bool], Any],
    ) -> None:
        """`complete(final)` returns the response, or None to go on waiting (never when final)."""
        self.future: asyncio.Future[Any] = loop.create_future()
        self._complete = complete
        self._missing = missing_bytes
        self._partitions = list(partitions)
        self._seen = sum(partition.committed_bytes for partition in self._partitions)
        for partition in self._partitions:
            partition.fetch_waiters.add(self)
        self._timer = loop.call_later(wait_seconds, self._expire)
        self.future.add_done_callback(self._done)

    def poke(self, partition: Partition) -> None:
        """Something changed at a partition: bytes, leadership, or its end."""
        if self.future.done():
            return
        if partition.is_leader and not partition.offline:
            arrived = sum(partition.committed_bytes for partition in self._partitions) - self._seen
            if arrived < self._missing:
                return
        response = self._complete(False)
        if response is not None:
            self.future.set_result(response)
        else:
            self._seen = sum(partition.committed_bytes for partition in self._partitions)

    def _expire(self) -> None:
        if not self.future.done():
            self.future.set_result(self._complete(True))

    def _done(self, future: asyncio.Future[Any]) -> None:
        # Also when the connection closed and cancelled it: nothing of a parked fetch stays behind.
        self._timer.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.discard(self)
