"""One shard and everything around it, from one election to the end of that leadership. machine.py changes these values.

Responsible for the interface of a shard (`Shard`), and for what waits at a shard: requests that are not answered yet,
answers that wait for the log, effects, collected records. Not responsible for when anything happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from pykbroker.coordinator.held_requests import HeldRequests
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker.coordinator.timers import Timers
from pykbroker.replica.partition import Partition
from pykbroker_log.results import ReadResult
from pykbroker_wire.errors import ErrorCode


class Shard(Protocol):
    """The state of one partition. `at` is a log offset; `producer_id` is -1 outside transactions."""

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...
    def loaded(self, now_ms: int) -> Iterator[Result]: ...
    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result: ...


S = TypeVar("S", bound=Shard)


class Request:
    """A request that is not answered yet. The future exists only if the answer did not come at once."""

    __slots__ = ("answer", "done", "future", "refusal")

    def __init__(self, refusal: Callable[[ErrorCode], Any]) -> None:
        self.refusal = refusal
        self.done = False
        self.answer: Any = None
        self.future: asyncio.Future[Any] | None = None

    def complete(self, answer: Any) -> None:
        assert not self.done
        self.done = True
        self.answer = answer
        # The future is cancelled if the connection was closed.
        if self.future is not None and not self.future.done():
            self.future.set_result(answer)

    def refuse(self, code: ErrorCode) -> None:
        self.complete(self.refusal(code))


class WaitingReplies:
    """Answers that wait until the log is committed up to `offset`."""

    __slots__ = ("answers", "deadline", "offset")

    def __init__(self, offset: int, deadline: float, answers: list[tuple[Request, Any]]) -> None:
        self.offset = offset
        self.deadline = deadline
        self.answers = answers


Encoded = list[tuple[bytes, bytes | None]]


class Host(Generic[S]):
    """One shard and everything around it, from one election to the end of that leadership. The leader epoch may rise in
    that time, because the same leader may be elected again."""

    __slots__ = (
        "collected",
        "collected_bytes",
        "committed",
        "effects",
        "epoch",
        "failing_timers",
        "first_epoch",
        "held",
        "load",
        "loaded_records",
        "partition",
        "reading",
        "ready",
        "reply_timer",
        "requests",
        "shard",
        "skipped_records",
        "timers",
        "waiting",
        "written",
    )

    def __init__(self, partition: Partition, epoch: int, shard: S) -> None:
        self.partition = partition
        #: the leader epoch in which this leadership began, and the current one
        self.first_epoch = self.epoch = epoch
        self.shard = shard
        #: True when the shard is loaded. Until then `load` is the rest of the loading, or None if that failed.
        self.ready = False
        self.load: Iterator[asyncio.Future[ReadResult] | None] | None = None
        #: the read from disk that the load waits for
        self.reading: asyncio.Future[ReadResult] | None = None
        #: requests that wait for the end of the load
        self.held: HeldRequests
        self.timers: Timers
        #: timers whose last input was refused. They fire again, and only the first refusal is logged.
        self.failing_timers: set[TimerKey] = set()
        self.loaded_records = 0
        self.skipped_records = 0
        self.requests: dict[Token, Request] = {}
        self.waiting: deque[WaitingReplies] = deque()
        #: (offset to be committed, effect)
        self.effects: deque[tuple[int, Any]] = deque()
        self.reply_timer: asyncio.TimerHandle | None = None
        #: the end of the log that this shard has replayed, and the end of the committed part
        self.written = 0
        self.committed = 0
        self.collected: list[tuple[Result, Encoded]] = []
        self.collected_bytes = 0

    def silence(self) -> None:
        """Stop all timers and the load, and accept no more requests."""
        self.ready = False
        self.timers.close()
        self.load = None
        if self.reply_timer is not None:
            self.reply_timer.cancel()
            self.reply_timer = None
