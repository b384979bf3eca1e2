"""The answers of one shard that wait until the log is committed, as Apache Kafka's DeferredEventQueue.

Responsible for their order, and for the error that an answer becomes if the commit takes too long. Not responsible for
what is committed (machine.py).

Invariants: answers are sent in the order of their offsets. Each request is answered once. The queue has a timer only
while an answer waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from pykbroker.metrics.recent import TimeHistogram
from pykbroker_wire.errors import ErrorCode


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


class _Waiting(NamedTuple):
    """Answers that wait until the log is committed up to `offset`."""

    offset: int
    deadline: float
    answers: list[tuple[Request, Any]]


class DeferredAnswers:
    """The queue of one shard. An answer that waits for `timeout` seconds becomes COORDINATOR_NOT_AVAILABLE."""

    __slots__ = ("_loop", "_timeout", "_timer", "_times", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float, times: TimeHistogram | None = None) -> None:
        """`times` gets the milliseconds that each committed part of the queue has waited."""
        self._loop = loop
        self._timeout = timeout
        self._times = times
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, offset: int, answers: list[tuple[Request, Any]]) -> None:
        """Send the answers when the log is committed up to `offset`, which never is less than that of an earlier
        call."""
        deadline = self._loop.time() + self._timeout
        self._waiting.append(_Waiting(offset, deadline, answers))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._overdue)

    def committed(self, offset: int) -> None:
        """Send the answers that wait for `offset` or less."""
        now = self._loop.time() if self._waiting and self._times is not None else 0.0
        while self._waiting and self._waiting[0].offset <= offset:
            waited = self._waiting.popleft()
            if self._times is not None:
                self._times.record((now - waited.deadline + self._timeout) * 1000)
            for request, answer in waited.answers:
                request.complete(answer)
        if not self._waiting:
            self.stop_timer()

    def take_all(self) -> list[Request]:
        """Return the requests that wait, in their order. The caller answers them."""
        requests = [request for waiting in self._waiting for request, _ in waiting.answers]
        self._waiting.clear()
        self.stop_timer()
        return requests

    def stop_timer(self) -> None:
        """Let the answers wait without a deadline, because the leadership ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            for request, _ in self._waiting.popleft().answers:
                request.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._overdue)
