"""The world a node lives in: loop, clock, randomness, disk, blocking calls and sockets.

Responsible for being the only place through which the shell reaches time, threads and files, so that the simulation
can put another world in its place. Not responsible for any policy.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pykbroker_log.disk import Disk

T = TypeVar("T")


class Runtime(Protocol):
    """What a node is given. `loop` is running when any coroutine of the node runs."""

    loop: asyncio.AbstractEventLoop
    disk: Disk
    random: random.Random

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump, so never used for timers."""
        ...

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run a call that blocks but releases the GIL (fsync, cold read, one-shot compression) off the loop."""
        ...

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int
    ) -> asyncio.Future[ListeningSocket]:
        """Bind and accept; port 0 takes a free one. Raises OSError."""
        ...

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        """Open a client connection. Raises OSError."""
        ...


class ListeningSocket(Protocol):
    """A bound listener."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...


class _ServerSocket:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()


class OsRuntime:
    """Real time, real threads, real files, real sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk | None = None, threads: int = 4) -> None:
        from pykbroker_log.disk import OsDisk

        self.loop = loop
        self.disk: Disk = disk if disk is not None else OsDisk()
        self.random = random.Random()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pykbroker-blocking")

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return self.loop.run_in_executor(self._threads, function, *args)

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, backlog: int
    ) -> asyncio.Future[ListeningSocket]:
        async def bind() -> ListeningSocket:
            # reuse_address as Kafka's acceptor does: a restart must not wait for TIME_WAIT.
            return _ServerSocket(
                await self.loop.create_server(factory, host or None, port, backlog=backlog, reuse_address=True)
            )

        return asyncio.ensure_future(bind(), loop=self.loop)

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        return asyncio.ensure_future(self.loop.create_connection(factory, host, port), loop=self.loop)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
