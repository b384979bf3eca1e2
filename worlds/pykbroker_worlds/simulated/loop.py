"""asyncio's loop with its own clock, which knows the process to which each callback belongs.

Responsible for virtual time, which moves only when nothing is left to do at the present moment. Responsible for not
running callbacks of a process that is paused or dead, and for calling `after_event` after each callback that ran. Not
responsible for processes: a `Process` knows whether it runs.

A callback belongs to the process in whose context it was scheduled: timers, futures and tasks inherit the context of
the code that creates them. A callback without a process belongs to the harness, and always runs.
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
    """The owner of callbacks."""

    runs: bool

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback of a process that does not run."""


OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("OWNER", default=None)


class _NoSelector(selectors.BaseSelector):
    """A selector in which nothing is ever ready."""

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
    """The virtual loop. `_ready` and `_scheduled` are BaseEventLoop's: callbacks of this moment, and a heap of
    timers."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_NoSelector())
        #: called after each callback that ran; an exception of one ends the run
        self.after_event: list[Callable[[], None]] = []
        #: the owner of the callback that ran last
        self.owner: Process | None = None
        #: the run is over: remaining callbacks of every process are ended
        self.is_over = False

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        """Run one turn of BaseEventLoop, without a selector."""
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
