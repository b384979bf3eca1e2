"""What a node is given of the world: loop, clock, randomness, disk, blocking calls and sockets, as contracts.

The simulation gives a node another world. Not responsible for the real one (OsRuntime), nor for any policy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykbroker.runtime.accepting import MakeProtocol
    from pykbroker.runtime.slow_turns import SlowTurn
    from pykbroker.runtime.workers import Job
    from pykbroker_log.disk import Disk, File

T = TypeVar("T")
#: Called on the loop, with what was raised.
OnEnded = Callable[["BaseException | None"], None]
#: Has a function called on another loop, soon and from any thread. It may raise RuntimeError: that loop is closed.
CallSoon = Callable[[Callable[[], None]], object]


class Runtime(Protocol):
    """What a node is given. `loop` is running when any coroutine of the node runs."""

    loop: asyncio.AbstractEventLoop
    disk: Disk
    random: random.Random
    #: how many connections of other programs there may be
    most_connections: int

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump, so never used for timers."""
        ...

    def stopwatch_ms(self) -> float:
        """Milliseconds, with fractions, from any moment on: for measuring what was done, never for timers."""
        ...

    def cpu_ms(self) -> float:
        """Milliseconds that this thread has computed, from any moment on: on the loop, those of the loop."""
        ...

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run a call that blocks but releases the GIL (fsync, cold read, one-shot compression) off the loop."""
        ...

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        """Make files of `disk` durable off the loop, as `Disk.fsync_files`."""
        ...

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        """Run a loop over records in a worker process: see workers.py for what a job is. Cancelling ends it."""
        ...

    def keep(self) -> None:
        """Much was made that will stay: the garbage collector need not look at it. May be called often."""
        ...

    def watch_turns(self, report: Callable[[SlowTurn], None]) -> Callable[[], None]:
        """Call `report` on the loop after each turn of it that was slow (slow_turns.py), until what this returns is
        called."""
        ...

    def beside(self) -> Beside:
        """A second loop of this node, for its broker half. Once."""
        ...

    def own_name(self) -> asyncio.Future[str]:
        """Ask for the name under which other machines reach this one. Raises OSError if it is not known in time."""
        ...

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        """Bind; port 0 takes a free one. Raises OSError."""
        ...

    def listen_at(self, accept: MakeProtocol, path: str) -> asyncio.Future[ListeningSocket]:
        """Bind a Unix socket that only this process's user may connect to; one that no process answers any more is
        replaced. Raises OSError."""
        ...

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        """Open a client connection. Raises OSError."""
        ...


class ListeningSocket(Protocol):
    """A bound listener: clients may connect, but are only accepted once it serves."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None: ...

    def close(self) -> None: ...


class Beside(Protocol):
    """What `Runtime.beside` returns. `runtime`: of the second loop."""

    runtime: Runtime
    #: None: both are one loop
    call_there: CallSoon | None
    call_back: CallSoon | None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it on the second loop until it ends, and return or raise what it does. Cancelled, it is cancelled there,
        and its end is waited for."""
        ...

    async def close(self) -> None:
        """End the second loop. Nothing of it is left when this returns."""
        ...
