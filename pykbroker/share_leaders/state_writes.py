"""The writes of one share partition's state, of which one is under way.

The share coordinator takes the writes of a share partition one after another. Writes that come while one is under way
go together as the next one. So many members that acknowledge records of one share partition share the cost of a write,
and the answer for a member waits for two writes, unless more than MOST_WRITES wait.

The writes of a leader that leaves are all sent at once. The next leader asks for the state after that. If a write were
sent after its question, the next leader would not know what it stores, although its sender gets a success.

A write that has others in it is the same to the share coordinator as these one after another. It merges the states of
an offset by delivery count and state, in whatever order they come (KIP-932). Later writes have later starts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from pykbroker.net.promise import Promise
from pykbroker.share_partitions.state_changes import DeliveryWrite
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.coordinator.share.share_partition_key import SharePartitionKey

logger = logging.getLogger(__name__)

#: The most writes that go together, because one turn of the loop deals with their outcome.
MOST_WRITES: Final = 256
#: The most ranges of writes that go together, because the share coordinator works on them in one turn too. A single
#: write may have more.
MOST_RANGES: Final = 2_000
#: The most writes that wait. While no share coordinator can be reached, the same locks end again and again.
MOST_WAITING: Final = 4_096

_TOO_MANY: Final = ShareStateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)

#: Sends a write, and returns a promise of its outcome.
SendWrite = Callable[[DeliveryWrite], Promise]


class _Waiting(NamedTuple):
    write: DeliveryWrite
    promise: Promise


class JoinedWrites:
    """Writes that come in the order of the calls. `send` is called for one at a time, except by `send_all`."""

    __slots__ = ("_ended_with", "_is_under_way", "_key", "_send", "_waiting")

    def __init__(
        self, key: SharePartitionKey, send: SendWrite, ended_with: Callable[[ShareStateAnswer], object]
    ) -> None:
        """`ended_with` is called with each answer to what `send` has sent, before the promises of its writes."""
        self._key = key
        self._ended_with = ended_with
        self._send = send
        self._is_under_way = False
        self._waiting: deque[_Waiting] = deque()

    def write(self, write: DeliveryWrite) -> Promise:
        """Send a write as soon as the one under way has its outcome. Return a promise of its own outcome, a
        `ShareStateAnswer`. The write may not change until then. If too many writes wait, the answer is
        COORDINATOR_NOT_AVAILABLE at once."""
        promise = Promise()
        if len(self._waiting) >= MOST_WAITING:
            promise.set_result(_TOO_MANY)
            return promise
        self._waiting.append(_Waiting(write, promise))
        self._send_next()
        return promise

    def send_all(self) -> None:
        """Send all writes that wait, without waiting for the one under way. Each still has its outcome. No write may
        come after that."""
        while self._waiting:
            self._send_some()

    def _send_next(self) -> None:
        # A promise may have its result within the call of `send`.
        while self._waiting and not self._is_under_way:
            self._is_under_way = True
            self._send_some()

    def _send_some(self) -> None:
        together = list(self._take())
        self._send(self._join(together)).add_done_callback(partial(self._ended, together))

    def _ended(self, together: list[_Waiting], outcome: Promise) -> None:
        self._is_under_way = False
        answer: ShareStateAnswer = outcome.result()
        for tell in (self._ended_with, *(each.promise.set_result for each in together)):
            try:
                tell(answer)
            except Exception:
                # The others must have their outcome too.
                logger.exception("The outcome of a write for %s could not be used", self._key)
        self._send_next()

    def _take(self) -> Iterator[_Waiting]:
        """Take the writes that go together: the first one, and those after it up to the limits."""
        ranges = 0
        for _ in range(min(MOST_WRITES, len(self._waiting))):
            ranges += len(self._waiting[0].write.ranges)
            yield self._waiting.popleft()
            if self._waiting and ranges + len(self._waiting[0].write.ranges) > MOST_RANGES:
                return

    def _join(self, together: list[_Waiting]) -> DeliveryWrite:
        last = together[-1].write
        if len(together) == 1:
            return last
        joined = DeliveryWrite(is_awaited=last.is_awaited)
        joined.start, joined.delivered = last.start, last.delivered
        joined.ranges = list(chain.from_iterable(each.write.ranges for each in together))
        return joined
