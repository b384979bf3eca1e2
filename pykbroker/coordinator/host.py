"""One shard and everything around it, from one election to the end of that leadership. machine.py changes these values.

Responsible for the interface of a shard (`Shard`), and for what waits at a shard: requests that are not answered yet,
answers that wait for the log (deferred_answers.py), effects, collected results (collected_batch.py). Not responsible
for when anything happens.

Invariants: `committed` and `written` only rise. An answer or an effect waits for an offset above `committed`.
`first_epoch` <= `epoch`. Requests and results come only while `ready`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from pykbroker.coordinator.collected_batch import CollectedBatch
from pykbroker.coordinator.deferred_answers import DeferredAnswers, Request
from pykbroker.coordinator.held_requests import HeldRequests
from pykbroker.coordinator.result import CoordinatorRecord, Result, TimerKey, Token
from pykbroker.coordinator.timers import Timers
from pykbroker.replica.partition import Partition
from pykbroker_log.results import ReadResult


class Shard(Protocol):
    """The state of one partition. `at` is a log offset; `producer_id` is -1 outside transactions."""

    def replay(self, record: CoordinatorRecord, at: int, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...
    def loaded(self, now_ms: int) -> Iterator[Result]: ...
    def on_timer(self, key: TimerKey, event: Any, now_ms: int) -> Result: ...


S = TypeVar("S", bound=Shard)


class LoadProgress:
    """The load of a shard from its log. It is over when `steps` is None."""

    __slots__ = ("began_s", "loaded_records", "reading", "skipped_records", "steps")

    def __init__(self) -> None:
        #: the rest of the load
        self.steps: Iterator[asyncio.Future[ReadResult] | None] | None = None
        #: the read from disk that the load waits for
        self.reading: asyncio.Future[ReadResult] | None = None
        #: the clock of the loop when the load began
        self.began_s = 0.0
        self.loaded_records = 0
        self.skipped_records = 0

    @property
    def is_under_way(self) -> bool:
        return self.steps is not None


class Host(Generic[S]):
    """One shard and everything around it, from one election to the end of that leadership. The leader epoch may rise in
    that time, because the same leader may be elected again."""

    __slots__ = (
        "answers",
        "batch",
        "committed",
        "effects",
        "epoch",
        "failing_timers",
        "first_epoch",
        "held",
        "load",
        "partition",
        "ready",
        "requests",
        "shard",
        "timers",
        "written",
    )

    def __init__(self, partition: Partition, epoch: int, shard: S, answers: DeferredAnswers) -> None:
        self.partition = partition
        #: the leader epoch in which this leadership began, and the current one
        self.first_epoch = self.epoch = epoch
        self.shard = shard
        #: True when the shard is loaded. Until then `load` is under way, or has failed.
        self.ready = False
        self.load = LoadProgress()
        #: requests that wait for the end of the load
        self.held: HeldRequests
        self.timers: Timers
        #: timers whose last input was refused. They fire again, and only the first refusal is logged.
        self.failing_timers: set[TimerKey] = set()
        #: requests without an answer yet
        self.requests: dict[Token, Request] = {}
        #: answers that wait for the commit
        self.answers = answers
        #: (offset to be committed, effect)
        self.effects: deque[tuple[int, Any]] = deque()
        #: the end of the log that this shard has replayed, and the end of the committed part
        self.written = 0
        self.committed = 0
        #: results that are not written yet
        self.batch = CollectedBatch()

    def silence(self) -> None:
        """Stop all timers and the load, and accept no more requests."""
        self.ready = False
        self.timers.close()
        self.load.steps = None
        self.answers.stop_timer()
