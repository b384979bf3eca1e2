"""The environment of a node: loop, clock, randomness, disk, blocking calls and sockets.

A node reaches time, threads and files only through this module, so that the simulation can replace them. Not
responsible for any policy.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pykbroker.runtime.beside import SameLoop
from pykbroker.runtime.client_clock import LoopClock
from pykbroker.runtime.slow_turns import SlowTurn, TurnWatch
from pykbroker.runtime.world import Beside, ListeningSocket, OnEnded, Runtime

if TYPE_CHECKING:
    from pykbroker.runtime.accepting import MakeProtocol
    from pykbroker.runtime.client_clock import ClientClock
    from pykbroker.runtime.descriptor_budget import DescriptorBudget
    from pykbroker.runtime.second_loop import SecondLoop
    from pykbroker.runtime.workers import Job, Workers
    from pykbroker_log.disk import Disk, File, Fsyncs
    from pykbroker_log.os_disk.disk import OsDisk

__all__ = ["Bind", "ListeningSocket", "OnEnded", "OsRuntime", "Runtime", "addresses_of", "bind_sockets", "when_done"]

T = TypeVar("T")

#: Takes a host, a port and a backlog.
Bind: TypeAlias = Callable[[str, int, int], list[socket.socket]]


def when_done(future: asyncio.Future[Any], ended: OnEnded) -> None:
    """Call `ended` with the future's exception or None. It is not called after a cancellation, which means that the
    node stops."""

    def tell(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            ended(done.exception())

    future.add_done_callback(tell)


def addresses_of(host: str) -> list[str]:
    """Return the addresses of a host name, in the form that a connection's peer address has. The list is empty for an
    unknown name."""
    try:
        return list(
            dict.fromkeys(str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        )
    except OSError:
        return []


def bind_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return a listening socket for each address of `host`, all on the same port. An address family that the machine
    lacks is left out. Raises OSError."""
    addresses = dict.fromkeys(
        (family, address[:2])
        for family, _, _, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    )
    # With port 0 the first address gets a free port. Another process may use that port at the second address; then try
    # again.
    for attempt in range(32):
        bound: list[socket.socket] = []
        try:
            for family, (address, _) in addresses:
                chosen = port or (bound[0].getsockname()[1] if bound else 0)
                try:
                    sock = socket.socket(family, socket.SOCK_STREAM)
                except OSError:
                    continue
                # As Kafka's acceptor does, so that a restart need not wait for the end of TIME_WAIT.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                bound.append(sock)
                try:
                    sock.bind((address, chosen))
                except OSError as error:
                    if error.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                        bound.remove(sock)
                        sock.close()
                        continue
                    raise
                sock.listen(backlog)
                sock.setblocking(False)
            if not bound:
                raise OSError(errno.EADDRNOTAVAIL, f"no address of {host!r} can be bound")
            return bound
        except OSError as error:
            for sock in bound:
                sock.close()
            if port or attempt == 31 or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError("unreachable")


class _Fsyncs:
    """One batch of fsyncs at a time in the kernel. The loop is notified when they have ended."""

    def __init__(self, runtime: OsRuntime, fsyncs: Fsyncs, idle: list[_Fsyncs]) -> None:
        self._runtime = runtime
        self._fsyncs = fsyncs
        self._idle = idle
        self._ended: OnEnded | None = None
        runtime.loop.add_reader(fsyncs.fileno(), self._look)

    def begin(self, files: Sequence[File], ended: OnEnded) -> bool:
        self._ended = ended
        return self._fsyncs.begin(files)

    def _look(self) -> None:
        error: OSError | None = None
        left: Sequence[File] | None = ()
        try:
            left = self._fsyncs.ended()
        except OSError as failure:
            error = failure
        if left is None:
            return
        ended = self._ended
        assert ended is not None
        self._idle.append(self)
        if left:
            when_done(self._runtime.run_blocking(self._runtime.disk.fsync_files, left), ended)
        else:
            ended(error)

    def close(self) -> None:
        self._runtime.loop.remove_reader(self._fsyncs.fileno())
        self._fsyncs.close()


class OsRuntime:
    """Real time, real threads, real files, real sockets."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: Disk | None = None,
        threads: int = 8,
        descriptors: DescriptorBudget | None = None,
        *,
        two_loops: bool = False,
        kind_of_disk: type[OsDisk] | None = None,
        bind: Bind = bind_sockets,
        make_client_clock: Callable[[asyncio.AbstractEventLoop], ClientClock] = LoopClock,
    ) -> None:
        """`descriptors`: by default all descriptors of this process. `two_loops`: the broker half of the node gets a
        loop and a thread of its own. `kind_of_disk`: the class of the disk that each loop gets, by default `OsDisk`.
        `bind` returns listening sockets, as `bind_sockets` does. `make_client_clock`: makes the clock of the loop on
        which clients are served."""
        from pykbroker.runtime.descriptor_budget import of_this_process
        from pykbroker_log.os_disk.disk import OsDisk

        budget = descriptors if descriptors is not None else of_this_process()
        self.loop = loop
        self.client_clock: ClientClock = LoopClock(loop) if two_loops else make_client_clock(loop)
        own, beside = budget.for_two_loops() if two_loops else (budget, budget)
        #: makes the runtime of the second loop, if there is one
        self._make_beside = (
            partial(
                OsRuntime,
                descriptors=beside,
                kind_of_disk=kind_of_disk,
                bind=bind,
                make_client_clock=make_client_clock,
            )
            if two_loops
            else None
        )
        self.disk: Disk = disk if disk is not None else (kind_of_disk or OsDisk)(max_open_files=own.files)
        self.most_connections = budget.connections
        #: A client that knows some ids of fetch sessions and group members cannot predict the next ids from them.
        self.random: random.Random = random.SystemRandom()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pykbroker-blocking")
        self._fsyncs: list[_Fsyncs] = []
        self._idle_fsyncs: list[_Fsyncs] = []
        self._workers: Workers | None = None
        self._watch: TurnWatch | None = None
        self._bind = bind
        self._second_loop: SecondLoop[OsRuntime] | None = None
        #: called by `keep`; only a process that runs nothing but a node may change its garbage collector
        #: (entry/node_process.py)
        self.on_keep: Callable[[], None] = lambda: None

    @property
    def now_ms(self) -> Callable[[], int]:
        # The function itself, so that its users call no more than that.
        return self.client_clock.now_ms

    def stopwatch_ms(self) -> float:
        return time.perf_counter_ns() / 1e6

    def cpu_ms(self) -> float:
        return time.thread_time_ns() / 1e6

    def run_blocking(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return self.loop.run_in_executor(self._threads, function, *args)

    def fsync(self, files: Sequence[File], ended: OnEnded) -> None:
        batch = self._take_fsyncs()
        if batch is None or not batch.begin(files, ended):
            if batch is not None:
                self._idle_fsyncs.append(batch)
            when_done(self.run_blocking(self.disk.fsync_files, files), ended)

    def _take_fsyncs(self) -> _Fsyncs | None:
        if self._idle_fsyncs:
            return self._idle_fsyncs.pop()
        fsyncs = self.disk.fsyncs()
        if fsyncs is None:
            return None
        self._fsyncs.append(_Fsyncs(self, fsyncs, self._idle_fsyncs))
        return self._fsyncs[-1]

    def run_apart(
        self,
        job: Job[T],
        *args: object,
        on_progress: Callable[[Any], None] | None = None,
        bytes_per_second: float | None = None,
    ) -> asyncio.Future[T]:
        if self._workers is None:
            from pykbroker.runtime.workers import Workers

            self._workers = Workers(self.loop, max(2, os.cpu_count() or 1))
        return self._workers.run(job, *args, on_progress=on_progress, bytes_per_second=bytes_per_second)

    def keep(self) -> None:
        self.on_keep()

    def watch_turns(self, report: Callable[[SlowTurn], None]) -> Callable[[], None]:
        self._watch = TurnWatch(self.loop, report)
        self._watch.start()
        return self._watch.close

    def beside(self) -> Beside:
        make_beside = self._make_beside
        if make_beside is None:
            return SameLoop(self)
        from pykbroker.runtime.second_loop import SecondLoop

        def make(loop: asyncio.AbstractEventLoop) -> OsRuntime:
            runtime = make_beside(loop)
            runtime.on_keep = self.keep
            return runtime

        self._second_loop = SecondLoop(self, type(self.loop), make)
        return self._second_loop

    def own_name(self) -> asyncio.Future[str]:
        from pykbroker.runtime.own_name import ask_on_a_thread  # only on a node that needs it

        return ask_on_a_thread(self.loop)

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        async def bind() -> ListeningSocket:
            from pykbroker.runtime.accepting import Acceptor

            return Acceptor(self.loop, self._bind(host, port, backlog), accept)

        return asyncio.ensure_future(bind(), loop=self.loop)

    def listen_at(self, accept: MakeProtocol, path: str) -> asyncio.Future[ListeningSocket]:
        async def bind() -> ListeningSocket:
            from pykbroker.runtime.unix_sockets import UnixSocket

            return UnixSocket(self.loop, path, accept)

        return asyncio.ensure_future(bind(), loop=self.loop)

    def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> asyncio.Future[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]:
        return asyncio.ensure_future(self.loop.create_connection(factory, host, port), loop=self.loop)

    def close(self) -> None:
        if self._second_loop is not None:
            self._second_loop.discard()
        if self._watch is not None:
            self._watch.close()
        if self._workers is not None:
            self._workers.close()
        for fsyncs in self._fsyncs:
            fsyncs.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
