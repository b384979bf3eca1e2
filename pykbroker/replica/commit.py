"""What of a partition's log is committed, and the requests that wait for it; pure.

Responsible for: how far readers may see while records owe a flush, and calling back when a flush or a commit has come
far enough, or will not. Not responsible for the replica set (leader.py), for flushing (storage/flusher.py), nor for the
log's high watermark, which partition.py moves to what this part and the leader allow.

flush.messages is a promise about what is acknowledged and read. The append that reaches it owes a flush, and so does
every one after it until that is done. `owed_from` is where they begin: nothing from there on is answered, whatever its
acks (`when_flushed`), nor passed by the high watermark.

Invariants:
* owed_from <= readable_to, and both are NEVER while no flush is owed.
* A callback is called once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from pykbroker_log.log_config import MAX_INT64
from pykbroker_wire.errors import ErrorCode

#: Where the appends that owe a flush begin when there are none.
NEVER = MAX_INT64
WhenCommitted = Callable[[ErrorCode], None]


class Commit:
    """The commit of one partition."""

    __slots__ = ("_sequence", "_unflushed", "_waiting", "owed_from", "readable_to")

    def __init__(self) -> None:
        #: the first offset that must not be answered before it is flushed
        self.owed_from = NEVER
        #: the offset that the high watermark must not pass before that
        self.readable_to = NEVER
        self._unflushed: list[tuple[int, WhenCommitted]] = []
        # A heap by offset. The sequence keeps callbacks of one offset in the order in which they came.
        self._waiting: list[tuple[int, int, WhenCommitted]] = []
        self._sequence = 0

    # -- flush --------------------------------------------------------------------------------------------------------

    @property
    def owes_flush(self) -> bool:
        return self.owed_from != NEVER

    def owe_flush(self, offset: int, *, readable_to: int = -1) -> None:
        """What was appended from `offset` on is not answered before it is flushed. `readable_to`: how far readers may
        see meanwhile, if further than that."""
        assert not self.owes_flush
        self.owed_from = offset
        self.readable_to = max(offset, readable_to)

    def flushed(self) -> None:
        """No flush is owed any more. `tell_flushed` says so."""
        self.owed_from = self.readable_to = NEVER

    def when_flushed(self, offset: int, callback: WhenCommitted) -> None:
        """Call back once nothing before `offset` owes a flush any more (at once if so), or with why it will not be."""
        if offset <= self.owed_from:
            callback(ErrorCode.NONE)
        else:
            self._unflushed.append((offset, callback))

    def tell_flushed(self) -> None:
        """Call back for everything that owes no flush any more."""
        waiters, self._unflushed = self._unflushed, []
        for waiter in waiters:
            if waiter[0] <= self.owed_from:
                waiter[1](ErrorCode.NONE)
            else:
                self._unflushed.append(waiter)

    # -- commit -------------------------------------------------------------------------------------------------------

    def when_committed(self, offset: int, callback: WhenCommitted) -> None:
        """Call back once the high watermark reaches `offset`, or with why it will not. The caller has looked: it has
        not reached it yet."""
        self._sequence += 1
        heapq.heappush(self._waiting, (offset, self._sequence, callback))

    def reached(self, high_watermark: int) -> None:
        """Call back for everything before the high watermark, in the order of the offsets."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            heapq.heappop(waiting)[2](ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Nothing that waits comes true: call back with why, in the order in which the requests came."""
        unflushed, self._unflushed = self._unflushed, []
        for _, callback in unflushed:
            callback(code)
        # In place: `reached` may be further up in this call, and must find nothing more.
        waiting = sorted(self._waiting, key=lambda entry: entry[1])
        self._waiting.clear()
        for _, _, callback in waiting:
            callback(code)
