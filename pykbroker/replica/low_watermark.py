"""Lets a DeleteRecords wait until no replica on a live broker has the deleted records (Kafka's DelayedDeleteRecords).

Responsible for the callbacks of one partition (`LowWatermark`), and for a request that waits for several partitions
(`DelayedDeletes`). Not responsible for the deletion (partition.py), nor for computing the low watermark (leader.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pykbroker_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pykbroker.replica.leader import PartitionLeader
    from pykbroker_log.partition_log import PartitionLog

INVALID_LOW_WATERMARK = -1


class DeletedRecords(NamedTuple):
    """The outcome for one partition: its low watermark, or the error."""

    code: ErrorCode
    low_watermark: int


class DeletedFrom(Protocol):
    """The part of a partition that this module uses."""

    low_watermark: LowWatermark

    @property
    def leader(self) -> PartitionLeader | None: ...

    @property
    def log_if_open(self) -> PartitionLog | None: ...


WhenDeleted = Callable[[DeletedRecords], None]


class LowWatermark:
    """The callbacks that wait for the low watermark of one partition. Each is called once, or forgotten."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: tuple[tuple[int, WhenDeleted], ...] = ()

    def when(self, partition: DeletedFrom, offset: int, callback: WhenDeleted) -> None:
        """Call back as soon as the low watermark reaches `offset`, or with the error if it will not."""
        if partition.leader is None:
            callback(DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER, INVALID_LOW_WATERMARK))
        elif partition.log_if_open is None:
            callback(DeletedRecords(ErrorCode.KAFKA_STORAGE_ERROR, INVALID_LOW_WATERMARK))
        else:
            self._waiting += ((offset, callback),)
            self.look(partition)

    def forget(self, callback: WhenDeleted) -> None:
        """Do not call the callback."""
        self._waiting = tuple(entry for entry in self._waiting if entry[1] is not callback)

    def look(self, partition: DeletedFrom) -> None:
        """Compute the low watermark again, because it may have moved, and call the callbacks whose offset it has
        reached."""
        leader, log = partition.leader, partition.log_if_open
        if not self._waiting or leader is None or log is None:
            return
        low_watermark = leader.low_watermark(log.log_start_offset)
        waiting = self._waiting
        self._waiting = tuple(entry for entry in waiting if entry[0] > low_watermark)
        for offset, callback in waiting:
            if offset <= low_watermark:
                callback(DeletedRecords(ErrorCode.NONE, low_watermark))

    def fail(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, ()
        for _, callback in waiting:
            callback(DeletedRecords(code, INVALID_LOW_WATERMARK))


class DelayedDeletes:
    """One request. It calls `answer` once, with the outcome of each deletion, in their order."""

    __slots__ = ("_answer", "_results", "_timer", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deletions: Sequence[tuple[DeletedFrom, int, int]],
        timeout_ms: int,
        answer: Callable[[list[DeletedRecords]], None],
    ) -> None:
        """`deletions`: partition, offset, and the present low watermark, which is in the answer if the time runs
        out."""
        self._answer = answer
        self._results = [
            DeletedRecords(ErrorCode.REQUEST_TIMED_OUT, low_watermark) for _, _, low_watermark in deletions
        ]
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, tuple[DeletedFrom, WhenDeleted]] = {
            position: (partition, partial(self._deleted, position))
            for position, (partition, _, _) in enumerate(deletions)
        }
        for position, (partition, offset, _) in enumerate(deletions):
            partition.low_watermark.when(partition, offset, self._waiting[position][1])
        if self._waiting:
            self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._expired)

    def cancel(self) -> None:
        """Stop waiting, because no answer is wanted."""
        waiting, self._waiting = self._waiting, {}
        for partition, callback in waiting.values():
            partition.low_watermark.forget(callback)
        if self._timer is not None:
            self._timer.cancel()

    def _deleted(self, position: int, result: DeletedRecords) -> None:
        self._results[position] = result
        del self._waiting[position]
        if not self._waiting:
            self._finish()

    def _expired(self) -> None:
        self.cancel()
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._answer(self._results)
