"""The interfaces of a node's environment: loop, clock, randomness, disk, blocking calls and sockets.

The simulation gives a node a simulated environment. Not responsible for the real environment (OsRuntime), nor for any
policy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pykbroker.runtime.accepting import MakeProtocol
    from pykbroker.runtime.client_clock import ClientClock
    from pykbroker.runtime.slow_turns import SlowTurn
    from pykbroker.runtime.workers import Job
    from pykbroker_log.disk import Disk, File

T = TypeVar("T")
#: Called on the loop when work has ended, with its exception or None.
OnEnded = Callable[["BaseException | None"], None]
#: Schedules the call of a function on another loop. May be used on any thread. Raises RuntimeError if that loop is
#: closed.
CallSoon = Callable[[Callable[[], None]], object]


class Runtime(Protocol):
    """The environment of a node. `loop` is running when any coroutine of the node runs."""

    loop: asyncio.AbstractEventLoop
    disk: Disk
    random: random.Random
    #: the clock of the time that clients feel, for the parts on this loop
    client_clock: ClientClock
    #: the most connections that other programs may make to this node
    most_connections: int

    def now_ms(self) -> int:
        """Return the wall-clock milliseconds since the epoch. They may jump, so timers never use them."""
        ...

    def stopwatch_ms(self) -> float:
        """Return milliseconds with fractions since an arbitrary time, for measuring durations, never for timers."""
        ...

    def cpu_ms(self) -> float:
        """Return the CPU milliseconds of the calling thread since an arbitrary time. On the loop this is the thread of
        the loop."""
        ...

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run a call that blocks but releases the GIL (fsync, cold read, one-shot compression) off the loop."""
        ...

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        """Make files of `disk` durable off the loop, as `Disk.fsync_files` does, and then call `ended` on the loop."""
        ...

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        """Run a job, such as a loop over records, in a worker process (see workers.py). Cancelling the future ends the
        job."""
        ...

    def keep(self) -> None:
        """Note that many long-lived objects were made, so that the garbage collector may skip them. May be called
        often."""
        ...

    def watch_turns(self, report: Callable[[SlowTurn], None]) -> Callable[[], None]:
        """Call `report` on the loop after each slow turn (slow_turns.py). Return a function that ends this."""
        ...

    def beside(self) -> Beside:
        """Return the loop for the node's broker half, which may be this loop. Call this once."""
        ...

    def own_name(self) -> asyncio.Future[str]:
        """Return a future of the name under which other machines reach this machine. It fails with OSError if the name
        is not found in time."""
        ...

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        """Bind a port; 0 stands for any free port. Raises OSError."""
        ...

    def listen_at(self, accept: MakeProtocol, path: str) -> asyncio.Future[ListeningSocket]:
        """Bind a Unix socket to which only this process's user may connect. A socket at the path that no process
        answers is replaced. Raises OSError."""
        ...

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        """Open a client connection. Raises OSError."""
        ...


class ListeningSocket(Protocol):
    """A bound listener. Clients may connect, but are accepted only after `serve`."""

    @property
    def port(self) -> int: ...

    async def serve(self) -> None: ...

    def close(self) -> None: ...


class Beside(Protocol):
    """The loop of the broker half, as `Runtime.beside` returns it. `runtime` is the runtime of that loop."""

    runtime: Runtime
    #: these two are None if both halves run on one loop
    call_there: CallSoon | None
    call_back: CallSoon | None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the second loop until it ends, and return its result or raise its error. A cancellation of this
        call cancels the work there, and the call waits for the end of the work."""
        ...

    async def close(self) -> None:
        """End the second loop. The loop and its thread have ended when this returns."""
        ...
