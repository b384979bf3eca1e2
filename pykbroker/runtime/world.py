"""The contracts of a node's environment: loop, clock, randomness, disk, blocking calls and sockets.

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
#: Called on the loop, with the exception or None.
OnEnded = Callable[["BaseException | None"], None]
#: Calls a function on another loop, soon; may be used on any thread. Raises RuntimeError if that loop is closed.
CallSoon = Callable[[Callable[[], None]], object]


class Runtime(Protocol):
    """The environment of a node. `loop` is running when any coroutine of the node runs."""

    loop: asyncio.AbstractEventLoop
    disk: Disk
    random: random.Random
    #: the most connections from other programs
    most_connections: int

    def now_ms(self) -> int:
        """Return the wall-clock milliseconds since the epoch. They may jump, so timers never use them."""
        ...

    def stopwatch_ms(self) -> float:
        """Return milliseconds with fractions since an arbitrary time, for measuring durations, never for timers."""
        ...

    def cpu_ms(self) -> float:
        """Return the CPU milliseconds of the calling thread, since an arbitrary time. On the loop they are the
        loop's."""
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
        """Note that many objects were made that will stay, so that the garbage collector may leave them out. May be
        called often."""
        ...

    def watch_turns(self, report: Callable[[SlowTurn], None]) -> Callable[[], None]:
        """Call `report` on the loop after each slow turn (slow_turns.py). Return a function that ends this."""
        ...

    def beside(self) -> Beside:
        """Return a second loop of this node, for its broker half. Call this once."""
        ...

    def own_name(self) -> asyncio.Future[str]:
        """Ask for the name under which other machines reach this one. Raises OSError if it is not known in time."""
        ...

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        """Bind a port; 0 stands for a free one. Raises OSError."""
        ...

    def listen_at(self, accept: MakeProtocol, path: str) -> asyncio.Future[ListeningSocket]:
        """Bind a Unix socket that only this process's user may connect to. A socket that no process answers is
        replaced. Raises OSError."""
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
    """A second loop, as `Runtime.beside` returns it. `runtime` is the runtime of that loop."""

    runtime: Runtime
    #: None if both are one loop
    call_there: CallSoon | None
    call_back: CallSoon | None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the second loop until it ends, and return its result or raise its error. A cancellation of this
        call cancels the work there, and the call waits for the end of the work."""
        ...

    async def close(self) -> None:
        """End the second loop. It is over, with its thread, when this returns."""
        ...
