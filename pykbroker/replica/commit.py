"""The committed part of a partition's log, and the requests that wait for a commit or a flush; pure.

Responsible for the offset up to which readers may read while records owe a flush. It also calls back when a flush or a
commit has reached an offset, or never will. Not responsible for the replica set (leader.py), for flushing
(storage/flush_rounds.py), nor for the log's high watermark, which partition.py moves as far as this part and the leader
allow. Not responsible for fetches, which wait for bytes and not for an offset (parked.py).

flush.messages is a promise about records that are acknowledged and read. The append that reaches this number of records
owes a flush, and so does each later append until that flush is done. `owed_from` is the first offset of these appends.
No record from there on is acknowledged, whatever its acks (`when_flushed`), and the high watermark does not pass
`readable_to`.

Invariants:
* owed_from <= readable_to, and both are NEVER while no flush is owed.
* A callback is called once.
"""

from __future__ import annotations

import heapq

from pykbroker.runtime.later import OnOutcome
from pykbroker_log.log_config import MAX_INT64
from pykbroker_wire.errors import ErrorCode

#: The value of `owed_from` and `readable_to` while no append owes a flush.
NEVER = MAX_INT64


class Waiter:
    """The callback of one call of `Commit.when_committed`. It is None after it was called or forgotten."""

    __slots__ = ("callback",)

    def __init__(self, callback: OnOutcome) -> None:
        self.callback: OnOutcome | None = callback


#: Empty lists, which most of the thousands of partitions of a node share; they are never changed.
_NO_UNFLUSHED: list[tuple[int, OnOutcome]] = []
_NO_WAITING: list[tuple[int, int, Waiter]] = []


class Commit:
    """The owed flush and the waiting callbacks of one partition."""

    __slots__ = ("_forgotten", "_sequence", "_unflushed", "_waiting", "owed_from", "readable_to")

    def __init__(self) -> None:
        #: the first offset that must not be acknowledged before it is flushed
        self.owed_from = NEVER
        #: the offset that the high watermark must not pass before that flush
        self.readable_to = NEVER
        # Each offset here is above `owed_from`.
        self._unflushed = _NO_UNFLUSHED
        # A heap ordered by offset, and each offset is above the high watermark. The sequence number keeps callbacks
        # for the same offset in their order.
        self._waiting = _NO_WAITING
        self._sequence = 0
        # The number of forgotten waiters in the heap, at most half of it.
        self._forgotten = 0

    # -- flush --------------------------------------------------------------------------------------------------------

    @property
    def owes_flush(self) -> bool:
        return self.owed_from != NEVER

    def owe_flush(self, offset: int, *, readable_to: int = -1) -> None:
        """Note that records from `offset` on must not be acknowledged before they are flushed. Until then readers may
        read up to `offset`, or up to `readable_to` if that is greater."""
        assert not self.owes_flush
        self.owed_from = offset
        self.readable_to = max(offset, readable_to)

    def flushed(self) -> None:
        """Note that no flush is owed. The caller then calls `tell_flushed`, which notifies the waiters."""
        self.owed_from = self.readable_to = NEVER

    def when_flushed(self, offset: int, callback: OnOutcome) -> None:
        """Call back as soon as no record before `offset` owes a flush, or with the error if that fails."""
        if offset <= self.owed_from:
            callback(ErrorCode.NONE)
        else:
            if self._unflushed is _NO_UNFLUSHED:
                self._unflushed = []
            self._unflushed.append((offset, callback))

    def tell_flushed(self) -> None:
        """Call back for all offsets before which no record owes a flush."""
        waiters, self._unflushed = self._unflushed, _NO_UNFLUSHED
        for offset, callback in waiters:
            self.when_flushed(offset, callback)

    # -- commit -------------------------------------------------------------------------------------------------------

    def when_committed(self, offset: int, callback: OnOutcome) -> Waiter:
        """Call back once the high watermark reaches `offset`, or with the error if it will not. The caller has checked
        that the high watermark is below `offset`."""
        self._sequence += 1
        waiter = Waiter(callback)
        if self._waiting is _NO_WAITING:
            self._waiting = []
        heapq.heappush(self._waiting, (offset, self._sequence, waiter))
        return waiter

    def forget(self, waiter: Waiter) -> None:
        """Do not call the waiter's callback. While a partition commits nothing for long, clients may give up and ask
        again many times. So forgotten waiters are dropped before they outnumber the others."""
        if waiter.callback is None:
            return
        waiter.callback = None
        self._forgotten += 1
        if self._forgotten * 2 > len(self._waiting):
            # The list is changed in place, as in `fail`.
            self._waiting[:] = [entry for entry in self._waiting if entry[2].callback is not None]
            heapq.heapify(self._waiting)
            self._forgotten = 0

    def reached(self, high_watermark: int) -> None:
        """Call back for all offsets up to the high watermark, in their order."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiter = heapq.heappop(waiting)[2]
            callback, waiter.callback = waiter.callback, None
            if callback is None:
                self._forgotten -= 1
            else:
                callback(ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Call all waiters back with the error, in the order in which the requests came."""
        unflushed, self._unflushed = self._unflushed, _NO_UNFLUSHED
        for _, callback in unflushed:
            callback(code)
        # The list is cleared in place. `reached` may have called this through a callback, and must then find no waiter.
        waiting = sorted(self._waiting, key=lambda entry: entry[1])
        self._waiting.clear()
        self._forgotten = 0
        for _, _, waiter in waiting:
            wanted, waiter.callback = waiter.callback, None
            if wanted is not None:
                wanted(code)
