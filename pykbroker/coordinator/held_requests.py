"""Requests that wait until a shard has loaded its log.

Most logs are loaded within milliseconds of an election. librdkafka passes COORDINATOR_LOAD_IN_PROGRESS of an offset
commit on to its application, so a commit that comes within these milliseconds waits here instead. Apache Kafka answers
it at once.

Responsible for the order of these requests, for how many wait, and for how long. Not responsible for when a shard is
loaded (shard_loading.py), nor for the answer of a request (machine.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from pykbroker.runtime.later import Later, settle

#: A request is held no longer than this, because later answers on its connection wait for its answer.
HOLD_SECONDS = 1.0
#: No more requests are held, because all of them run in the turn of the loop in which the shard becomes ready.
MAX_HELD = 500


class HeldRequests:
    """The held requests of one shard, in the order in which they came."""

    __slots__ = ("_held", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: (deadline, answer, function that runs the request)
        self._held: deque[tuple[float, asyncio.Future[Any], Callable[[], Later[Any]]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, run: Callable[[], Later[Any]]) -> asyncio.Future[Any] | None:
        """Call `run` at `release`, or after HOLD_SECONDS. `run` is called even if the client has closed its connection
        by then.

        Returns a future of what `run` returns, or None if too many requests wait already."""
        if len(self._held) >= MAX_HELD:
            return None
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._held.append((self._loop.time() + HOLD_SECONDS, answer, run))
        self._watch()
        return answer

    def release(self) -> None:
        """Run all held requests now. Call it when the shard is ready, and when it is given up."""
        while self._held:
            self._run_first()
        self._watch()

    def _run_first(self) -> None:
        _, answer, run = self._held.popleft()
        settle(answer, run)

    def _overdue(self) -> None:
        self._timer = None
        while self._held and self._held[0][0] <= self._loop.time():
            self._run_first()
        self._watch()

    def _watch(self) -> None:
        """Keep one timer, for the request that waits longest."""
        if self._held and self._timer is None:
            self._timer = self._loop.call_at(self._held[0][0], self._overdue)
        elif not self._held and self._timer is not None:
            self._timer.cancel()
            self._timer = None
