"""Fetches that wait for bytes, for an error, or for their deadline (Kafka's DelayedFetch), without polling.

The `Isolation` of a fetch decides which bytes it waits for: an append counts for a follower at once, and for a consumer
when it is committed. Not responsible for reading: this module calls `read` again when there may be enough bytes. Not
responsible for acknowledgements, which wait in commit.py. An acknowledgement waits for one offset of one partition and
is given within the append that reaches it. A fetch waits for bytes of many partitions and is woken once in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Protocol

from pykbroker.net.promise import Promise
from pykbroker.replica.awaited_followers import AwaitedFollowers
from pykbroker.replica.deadlines import Deadlines


class Isolation(IntEnum):
    """The offset up to which a fetch may read (Kafka's FetchIsolation)."""

    #: for followers
    LOG_END = 0
    HIGH_WATERMARK = 1
    #: up to the last stable offset
    TXN_COMMITTED = 2


class FetchWaiter(Protocol):
    """The part of a parked fetch that a partition uses. A leader of a share partition waits in the same way, for the
    fetches of its members (share_leaders/)."""

    @property
    def isolation(self) -> Isolation: ...

    def poke(self, arrived_bytes: int) -> None:
        """Note that this many bytes became readable, or that something else has happened."""


class WatchedPartition(Protocol):
    """The part of a partition, or of a leader of a share partition, that a parked fetch uses: the fetches to wake when
    it changes."""

    fetch_waiters: dict[FetchWaiter, None]


def _read_no_more(final: bool) -> Any:
    raise AssertionError("a parked fetch that is done reads no more")


class ParkedFetch:
    """A fetch that waits until enough bytes are readable for it. It may also wait until data is loaded into memory.
    Until then nothing else ends it, not even its deadline, just as a read of Apache Kafka waits for its disk."""

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
        partitions: Callable[[], Iterable[WatchedPartition]],
        found: int | asyncio.Future[Any],
        wait_seconds: float,
        read: Callable[[bool], Any],
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
    ) -> None:
        """`read(final)` returns the response. If `final` is False, it may instead return the number of bytes that are
        still missing in `partitions()`. It may also return a future of one of these. `found` is its first result."""
        self.future: asyncio.Future[Any] = deadlines.loop.create_future()
        self._read = read
        self.isolation = isolation
        self._missing_bytes = 0
        #: True if one of its partitions has changed since it was read
        self.poked = False
        self._partitions_of: Callable[[], Iterable[WatchedPartition]] | None = partitions
        self._partitions: list[WatchedPartition] = []
        self._is_loading = False
        self._is_late = False
        self._deadline = deadlines.after(wait_seconds, self._expire)
        self.future.add_done_callback(self._done)
        self._take(found)

    def poke(self, arrived_bytes: int) -> None:
        """Note that this many bytes became readable in its partitions, or that something else happened to them."""
        self.poked = True
        self._missing_bytes -= arrived_bytes
        if self._missing_bytes <= 0 and not self._is_loading:
            self._complete(False)

    def end(self) -> None:
        """Answer now, with the records that are readable."""
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
        except Exception as error:  # noqa: BLE001  # a bug of this request alone: others wait for the partition too
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
        """Begin to get notifications of changes of the partitions."""
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
            # Read again. The partitions may have changed since that read, and this fetch was not notified; or the
            # deadline has passed.
            self._watch()
            self._complete(self._is_late)
        else:
            self.future.set_result(done.result())

    def _done(self, future: asyncio.Future[Any]) -> None:
        # This is also called when a closed connection has cancelled the future. No reference to a parked fetch may
        # stay.
        self._deadline.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)
        # The reader refers to this object. When this circle is broken, the object is freed at once, not by the garbage
        # collector.
        self._read = _read_no_more
        self._partitions_of = None


class FetchPurgatory:
    """All fetches that wait on this node (Kafka's DelayedOperationPurgatory). A fetch is woken at most once in a turn
    of the loop, even if several of its partitions have changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        """`most` (pykbroker.max.parked.requests): a consumer's fetch may wait only if fewer fetches than this wait. A
        follower would ask again at once, so a follower's fetch may wait if fewer than twice this number wait."""
        self._loop = loop
        self.deadlines = Deadlines(loop)
        self._followers = AwaitedFollowers(loop)
        #: all requests that wait
        self.count = 0
        #: those of members of share groups, also requests that are refused after a time
        self.share_count = 0
        self.most = most
        # partition -> the bytes that became readable since the last wake, for each `Isolation`.
        self._changed: dict[WatchedPartition, tuple[int, int, int]] = {}

    def has_room(self, replica_id: int) -> bool:
        """Return True if one more fetch may wait. `replica_id`: that of a follower, or a negative number for a
        consumer."""
        return self.count < (self.most if replica_id < 0 else 2 * self.most)

    def park(
        self,
        replica_id: int,
        isolation: Isolation,
        found: int | asyncio.Future[Any],
        wait_seconds: float,
        read: Callable[[bool], Any],
        partitions: Callable[[], Iterable[WatchedPartition]],
        *,
        is_share: bool = False,
    ) -> ParkedFetch:
        """Let a fetch wait. `is_share` is True for a member of a share group. The other arguments are those of
        ParkedFetch."""
        if replica_id >= 0:
            wait_seconds = self._followers.wait_seconds(replica_id, wait_seconds)
        parked = ParkedFetch(self.deadlines, partitions, found, wait_seconds, read, isolation=isolation)
        self._add(is_share)
        parked.future.add_done_callback(lambda _: self._remove(is_share))
        if replica_id >= 0:
            self._followers.park(replica_id, parked)
        return parked

    def _add(self, is_share: bool) -> None:
        self.count += 1
        self.share_count += is_share

    def _remove(self, is_share: bool) -> None:
        self.count -= 1
        self.share_count -= is_share

    def delay(self, answer: object, wait_seconds: float) -> Promise | None:
        """Return a promise that has the answer to a member of a share group after a time. It counts as a fetch of a
        consumer that waits. Return None if there is no room for it."""
        if not self.has_room(-1):
            return None
        self._add(True)
        promise = Promise()

        def end() -> None:
            self._remove(True)
            promise.set_result(answer)

        def cancel() -> None:
            self._remove(True)
            deadline.cancel()

        deadline = self.deadlines.after(wait_seconds, end)
        promise.when_cancelled(cancel)
        return promise

    def expect(self, followers: Iterable[int]) -> None:
        """Note that a leader epoch of a partition with these followers begins (see AwaitedFollowers)."""
        self._followers.expect(followers)

    def changed(self, partition: WatchedPartition, log_end: int, committed: int, stable: int) -> None:
        """Note the number of bytes that became readable up to the log end, up to the high watermark and up to the last
        stable offset."""
        changed = self._changed
        if not changed:
            self._loop.call_soon(self._wake)
        before = changed.get(partition)
        if before is None:
            changed[partition] = (log_end, committed, stable)
        else:
            changed[partition] = (before[0] + log_end, before[1] + committed, before[2] + stable)

    def _wake(self) -> None:
        changed, self._changed = self._changed, {}
        arrived: dict[FetchWaiter, int] = {}
        for partition, counts in changed.items():
            for parked in partition.fetch_waiters:
                arrived[parked] = arrived.get(parked, 0) + counts[parked.isolation]
        for parked, count in arrived.items():
            parked.poke(count)
