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
import gc
import heapq
import itertools
import math
import selectors
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast


class NotSimulated(RuntimeError):
    """A call that would leave the world: a real socket, a subprocess, TLS."""


class Process(Protocol):
    """The owner of callbacks, and what the loop gives to code that knows the loop alone, such as stock clients."""

    runs: bool

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback of a process that does not run."""

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        """Connect through the network of the world."""
        ...

    def run_blocking(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Call it in a simulated thread."""
        ...


#: Callbacks between two collections of young objects, and how many of these until one of all objects.
_COLLECT_EVERY = 1_000
_COLLECT_OLD_EVERY = 50

OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("OWNER", default=None)


def _present_process() -> Process:
    owner = OWNER.get()
    if owner is None:
        raise NotSimulated("only a process of the world connects or has threads")
    return owner


class _NumberedFuture(asyncio.Future[Any]):
    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    def __init__(self, coro: Any, loop: asyncio.AbstractEventLoop, number: int, **others: Any) -> None:
        # A task is added to a set of all tasks by its constructor.
        self._number = number
        super().__init__(coro, loop=loop, **others)

    def __hash__(self) -> int:
        return self._number


class _Due(float):
    """When a timer is due, with the timer. A heap compares numbers in C, and would call Python for timers."""

    __slots__ = ("timer",)
    timer: asyncio.TimerHandle


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
    timers, which are in it by the times at which they are due."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[_Due]
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, tick_seconds: float = 0.0, *, numbered: bool = False) -> None:
        """`tick_seconds`: the time that each callback takes. With 0 time moves only when nothing is left to do. Clients
        that compute deadlines with floats and wait for `deadline - now` need more than that. `numbered`: the hash of a
        future or a task is its number, so that sets of them have the same order in each process, and garbage is
        collected after a number of callbacks."""
        self._now = 0.0
        self._tick_seconds = tick_seconds
        self._numbers = itertools.count() if numbered else None
        self._collects_at: float = _COLLECT_EVERY if numbered else math.inf
        super().__init__(_NoSelector())
        if self._numbers is not None:
            self.set_task_factory(self._numbered_task)
        #: called after each callback that ran; an exception of one ends the run
        self.after_event: list[Callable[[], None]] = []
        #: called before code that knows the loop alone connects; what it raises is the result
        self.before_connect: Callable[[], None] = lambda: None
        self._collections = 0
        #: how many callbacks have run
        self.callbacks = 0
        #: the owner of the callback that ran last
        self.owner: Process | None = None
        #: the run is over
        self.is_over = False
        #: run callbacks of paused and dead processes too, so that their tasks end
        self.runs_all = False

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]  # as general as the base's, without a TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self.is_closed():
            raise RuntimeError("the event loop is closed")
        timer: Any = asyncio.TimerHandle(when, callback, args, self, context)
        due = _Due(when)
        due.timer = timer
        heapq.heappush(self._scheduled, due)
        timer._scheduled = True
        return cast(asyncio.TimerHandle, timer)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self) if self._numbers is None else _NumberedFuture(self, next(self._numbers))

    def _numbered_task(self, loop: Any, coro: Any, **others: Any) -> asyncio.Task[Any]:
        assert self._numbers is not None
        return _NumberedTask(coro, loop, next(self._numbers), **others)

    def _run_once(self) -> None:
        """Run one turn of BaseEventLoop, without a selector."""
        self._forget_cancelled()
        ready, scheduled = self._ready, self._scheduled
        if not ready and not self._stopping:
            if not scheduled:
                raise AssertionError("the simulation is stuck: no callback waits for time to pass")
            self._now = max(self._now, float(scheduled[0]))
        while scheduled and scheduled[0] <= self._now:
            timer: Any = heapq.heappop(scheduled).timer
            timer._scheduled = False
            ready.append(timer)
        hooks = self.after_event
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is not None and not owner.runs and not self.runs_all:
                owner.hold(handle)
                continue
            handle._run()
            self.callbacks += 1
            self._now += self._tick_seconds
            self.owner = owner
            for hook in hooks:
                hook()
        if self.callbacks >= self._collects_at:
            self._collect()

    def _collect(self) -> None:
        """Collect garbage. Clients close what they find unclosed then, so its time must not depend on how much memory
        the process has, for example with coverage."""
        self._collects_at = self.callbacks + _COLLECT_EVERY
        self._collections += 1
        gc.collect(1 if self._collections % _COLLECT_OLD_EVERY else 2)

    # -- the network and the threads of the present process, for code that knows the loop alone ----------------------

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **others: Any) -> Any:
        """Connect the present process to a port of the world, whatever the host. Raises NotSimulated with `ssl`."""
        if others.get("ssl") or others.get("sock") is not None:
            raise NotSimulated("no TLS and no socket of one's own inside a world")
        self.before_connect()
        return await _present_process().connect(protocol_factory, host, port)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return _present_process().run_blocking(func, *args)

    async def getaddrinfo(self, host: Any, port: Any, **others: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_server(self, *args: Any, **others: Any) -> Any:
        raise NotSimulated("only brokers listen inside a world")

    async def sock_connect(self, sock: Any, address: Any) -> None:
        raise NotSimulated(f"a real socket would leave the world, to {address!r}")

    async def create_datagram_endpoint(self, *args: Any, **others: Any) -> Any:
        raise NotSimulated("no datagrams inside a world")

    async def subprocess_exec(self, *args: Any, **others: Any) -> Any:
        raise NotSimulated("no subprocess inside a world")

    subprocess_shell = subprocess_exec

    # -- its turns ----------------------------------------------------------------------------------------------------

    def _forget_cancelled(self) -> None:
        timer: Any
        scheduled = self._scheduled
        if len(scheduled) > 100 and self._timer_cancelled_count * 2 > len(scheduled):
            kept = []
            for due in scheduled:
                timer = due.timer
                if timer._cancelled:
                    timer._scheduled = False
                else:
                    kept.append(due)
            heapq.heapify(kept)
            scheduled = self._scheduled = kept
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0].timer.cancelled():
            timer = heapq.heappop(scheduled).timer
            timer._scheduled = False
            self._timer_cancelled_count -= 1

    def release(self, handles: list[asyncio.Handle]) -> None:
        """Run held callbacks now, in this order."""
        self._ready.extend(handles)
