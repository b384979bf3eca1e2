"""Delays the answer to a Produce whose records are in the logs (Kafka's DelayedProduce).

The answer waits first for the flushes that are owed, however long they take, as Apache Kafka's append does. Then, with
acks=all, it waits until each partition has committed the records, within the request's timeout. Not responsible for
building the answer: `answer` gets the error of each append that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from pykbroker.replica.commit import Waiter
from pykbroker.replica.partition import Partition
from pykbroker_wire.errors import ErrorCode

ACKS_ALL = -1
#: The partition of each append, and the last offset of its records.
AppendedOffsets = Sequence[tuple[Partition, int]]


class DelayedProduce:
    """Waits for the appends of one request, then calls `answer` once with the errors: position of the append ->
    error."""

    __slots__ = (
        "_acks",
        "_answer",
        "_appended",
        "_failed",
        "_loop",
        "_open",
        "_reigns",
        "_timeout_ms",
        "_timer",
        "_unflushed",
        "_waiters",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        appended: AppendedOffsets,
        *,
        acks: int,
        timeout_ms: int,
        answer: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        self._loop = loop
        self._appended = appended
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._answer = answer
        self._failed: dict[int, ErrorCode] = {}
        self._open = set(range(len(appended)))
        self._unflushed = len(appended)
        self._reigns = [partition.reign for partition, _ in appended]
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[tuple[Partition, Waiter]] = []

    def begin(self) -> None:
        for position, (partition, last) in enumerate(self._appended):
            partition.when_flushed(last + 1, partial(self._flushed, position))

    def cancel(self) -> None:
        """Stop waiting, because no answer is wanted."""
        self._open.clear()
        self._end()

    def _flushed(self, position: int, code: ErrorCode) -> None:
        if code or self._acks != ACKS_ALL:
            self._finish(position, code)
        self._unflushed -= 1
        if not self._unflushed and self._open:
            self._await_commits()

    def _await_commits(self) -> None:
        for position in sorted(self._open):
            partition, last = self._appended[position]
            if partition.reign != self._reigns[position]:
                # During the flushes this node has lost the leadership or the log, so the record may be cut off.
                self._finish(position, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                waiter = partition.when_committed(last + 1, partial(self._committed, position))
                if waiter is not None:
                    self._waiters.append((partition, waiter))
        if self._open:
            self._timer = self._loop.call_later(max(0, self._timeout_ms) / 1000, self._expired)

    def _committed(self, position: int, code: ErrorCode) -> None:
        if position not in self._open:
            return
        if not code and not self._appended[position][0].had_enough_replicas:
            # The record is committed only because the ISR has shrunk in the meantime.
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._finish(position, code)

    def _expired(self) -> None:
        for position in sorted(self._open):
            self._finish(position, ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, position: int, code: ErrorCode) -> None:
        if position not in self._open:
            return
        self._open.discard(position)
        if code:
            self._failed[position] = code
        if not self._open:
            answer = self._answer
            self._end()
            answer(self._failed)

    def _end(self) -> None:
        """Drop the references from this object to the partitions and from them to this object, because a partition may
        commit nothing for long."""
        self._appended, self._answer = (), _no_answer
        waiters, self._waiters = self._waiters, []
        for partition, waiter in waiters:
            partition.forget(waiter)
        if self._timer is not None:
            self._timer.cancel()


def _no_answer(failed: dict[int, ErrorCode]) -> None:
    raise AssertionError("a request is answered once")
