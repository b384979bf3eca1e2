"""asyncio's loop on a clock of its own, which knows the process that each callback belongs to.

Responsible for: virtual time (it moves only when nothing is left to do at the present moment), for not running what
belongs to a process that is paused or dead, and for telling `after_event` after each callback that ran. Not responsible
for what processes are: a `Process` says of itself whether it runs.

A callback belongs to the process whose context it was scheduled in: timers, futures and tasks take the context of the
code that makes them along. What belongs to no process is the harness, and always runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import selectors
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Process(Protocol):
    """What owns callbacks."""

    runs: bool

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback of a process that does not run."""


OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("OWNER", default=None)


class _NoSelector(selectors.BaseSelector):
    """Nothing is ever ready."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(
            fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data
        )
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `_ready` and `_scheduled` are BaseEventLoop's: callbacks of this moment, and a heap of timers."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_NoSelector())
        #: called after each callback that ran; what they raise ends the run
        self.after_event: list[Callable[[], None]] = []
        #: of the callback that ran last
        self.owner: Process | None = None
        #: the run is over: what is left ends, in every process
        self.is_over = False

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """One turn: BaseEventLoop's, without a selector."""
        self._forget_cancelled()
        ready, scheduled = self._ready, self._scheduled
        if not ready and not self._stopping:
            if not scheduled:
                raise AssertionError("the simulation is stuck: no callback waits for time to pass")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            timer: Any = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        hooks = self.after_event
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is not None and not owner.runs and not self.is_over:
                owner.hold(handle)
                continue
            handle._run()
            self.owner = owner
            for hook in hooks:
                hook()

    def _forget_cancelled(self) -> None:
        scheduled: Any = self._scheduled
        if len(scheduled) > 100 and self._timer_cancelled_count * 2 > len(scheduled):
            kept = []
            for timer in scheduled:
                if timer._cancelled:
                    timer._scheduled = False
                else:
                    kept.append(timer)
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0
        while self._scheduled and self._scheduled[0].cancelled():
            first: Any = heapq.heappop(self._scheduled)
            first._scheduled = False
            self._timer_cancelled_count -= 1

    def release(self, handles: list[asyncio.Handle]) -> None:
        """Run held callbacks now, in this order."""
        self._ready.extend(handles)
