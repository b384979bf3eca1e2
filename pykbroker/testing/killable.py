"""The runtime of a node that can be cut off at any moment. It has the same effect on one thread as `kill -9` and a
network partition have on a process.

Responsible for every socket and every file of one node, for closing them all at any moment, and for holding back the
traffic with nodes that are apart. Not responsible for the node's thread and loop (node_thread.py), nor for the choice
of nodes that are apart (network.py).

The death of a node: another thread shuts its sockets down first, so that its peers see the end of each connection and
its ports refuse. Then its loop stops, and then its files are closed. Data that it writes between the first and the last
step was never acknowledged; a process that was killed a moment later would have left the same.

Traffic that is held back: both ends of a connection stop reading. Sent bytes wait in the buffers of the operating
system and arrive when the network heals, as TCP does it. A peer does not see the end of a connection before that
either. A new connection waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, cast

from pykbroker.runtime import ListeningSocket, OsRuntime, bind_sockets
from pykbroker.runtime.accepting import Acceptor, MakeProtocol
from pykbroker.runtime.client_clock import ClientClock, LoopClock
from pykbroker.runtime.descriptor_budget import DescriptorBudget
from pykbroker.runtime.second_loop import SecondLoop
from pykbroker.runtime.world import Beside
from pykbroker.testing.network import HOST, Network
from pykbroker_log.os_disk.descriptors import Descriptor, Descriptors
from pykbroker_log.os_disk.files import OsFile
from pykbroker_log.os_disk.locks import OsLock
from pykbroker_log.os_disk.volatile import VolatileDisk

logger = logging.getLogger(__name__)

Factory = Callable[[], asyncio.BaseProtocol]
Connected = tuple[asyncio.BaseTransport, asyncio.BaseProtocol]

_FEW_LINKS = 64


class KillableRuntime(OsRuntime):
    """The runtime of one node of a cluster. A node has two loops; the second loop has a runtime of its own. To kill a
    node, call `cut_off`, and when a loop has stopped, `bury` on its thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        network: Network,
        descriptors: DescriptorBudget,
        *,
        is_second: bool = False,
        make_client_clock: Callable[[asyncio.AbstractEventLoop], ClientClock] = LoopClock,
    ) -> None:
        """`descriptors`: the limit of the node, or the limit of its second loop if `is_second`. `make_client_clock` is
        for the second loop."""
        own, beside = (descriptors, descriptors) if is_second else descriptors.for_two_loops()
        clock = make_client_clock if is_second else LoopClock
        super().__init__(loop, KillableDisk(own.files), descriptors=own, make_client_clock=clock)
        self._make_client_clock = make_client_clock
        self._budget_beside = beside
        self.node_id = node_id
        self.network = network
        #: the runtime of the second loop; None until the node has made it
        self.second: KillableRuntime | None = None
        self._lock = threading.Lock()
        self.is_cut_off = False
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        #: the links of all connections; links of ended connections are removed when there are many links
        self._links: list[_Link] = []
        self._look_at = _FEW_LINKS
        #: connections that wait until the network changes
        self._waiting: list[asyncio.Future[None]] = []

    def beside(self) -> Beside:
        def make(loop: asyncio.AbstractEventLoop) -> KillableRuntime:
            self.second = KillableRuntime(
                loop,
                self.node_id,
                self.network,
                self._budget_beside,
                is_second=True,
                make_client_clock=self._make_client_clock,
            )
            return self.second

        def end(runtime: OsRuntime) -> None:
            if self.is_cut_off:
                cast(KillableRuntime, runtime).bury()
            else:
                runtime.close()
                runtime.loop.close()

        self._second_loop = SecondLoop(self, killable_loop, make, end)
        return self._second_loop

    @property
    def each(self) -> tuple[KillableRuntime, ...]:
        """Return this runtime, and that of the second loop."""
        return (self,) if self.second is None else (self, self.second)

    # -- sockets

    def keep_socket(self, sock: socket.socket) -> None:
        """Let `cut_off` shut the socket down. If the node was cut off already, close the socket and raise OSError."""
        with self._lock:
            if not self.is_cut_off:
                self._sockets.add(sock)
                return
        sock.close()
        raise OSError(errno.ENETDOWN, "the node was killed")

    def linked(self, make: Factory, peer: int | None) -> Factory:
        """Return a factory of protocols whose connections follow the network, if a client or another node is the
        peer."""
        if peer is None or peer == self.node_id:
            return make
        return lambda: _Handover(self, make(), peer)

    def add_link(self, link: _Link) -> None:
        self._links.append(link)
        if len(self._links) > self._look_at:
            self._links = [link for link in self._links if not link.is_closing()]
            self._look_at = max(_FEW_LINKS, 2 * len(self._links))
        # `follow` runs later, because a transport may begin to read only after it has called its protocol.
        self.loop.call_soon(link.follow)

    def network_changed(self) -> None:
        """Let all connections follow the network. Runs on the loop."""
        for link in self._links:
            link.follow()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def listen(self, accept: MakeProtocol, host: str, port: int, backlog: int) -> asyncio.Future[ListeningSocket]:
        future: asyncio.Future[ListeningSocket] = self.loop.create_future()
        try:
            sockets = bind_sockets(host, port, backlog)
            for sock in sockets:
                self.keep_socket(sock)
            future.set_result(_Acceptor(self, sockets, accept))
        except OSError as error:
            future.set_exception(error)
        return future

    def connect(self, factory: Factory, host: str, port: int) -> asyncio.Future[Connected]:
        return asyncio.ensure_future(self._connect(factory, host, port), loop=self.loop)

    async def _connect(self, factory: Factory, host: str, port: int) -> Connected:
        loop, network = self.loop, self.network
        peer = network.listening(port)
        while peer is not None and network.are_apart(self.node_id, peer):
            changed: asyncio.Future[None] = loop.create_future()
            self._waiting.append(changed)
            await changed
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.keep_socket(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind((HOST, 0))
            network.connects(self.node_id, sock)
            await loop.sock_connect(sock, (host, port))
            made = await loop.create_connection(self.linked(factory, peer), sock=sock)
        except BaseException:
            sock.close()
            raise
        return cast(Connected, made)

    # -- its death

    def cut_off(self) -> None:
        """Shut every socket down, and let no further socket be made. May be called from any thread."""
        with self._lock:
            self.is_cut_off = True
            sockets = list(self._sockets)
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed, or was not connected yet

    def read_no_more(self) -> None:
        """Stop reading. Runs on the loop after `cut_off`."""
        for link in self._links:
            link.read_no_more()

    def bury(self) -> None:
        """Close everything that the operating system would close after a process was killed. The loop has stopped and
        never runs again."""
        # Files come first, so that threads that still run can open no further files.
        cast(KillableDisk, self.disk).die()
        loop = self.loop
        # Otherwise futures and tasks whose results no caller has read log errors when they are garbage-collected.
        loop.set_exception_handler(lambda *_: None)
        closed: set[asyncio.Task[object]] = set()
        while left := asyncio.all_tasks(loop) - closed:
            for task in left:
                closed.add(task)
                coroutine = task.get_coro()
                # The `finally` clauses of the coroutine run while the node is cut off, so their exceptions are ignored.
                with contextlib.suppress(BaseException):
                    coroutine.close()
        if self._second_loop is not None:
            self._second_loop.join()
        self.close()
        self.close_loop()

    def close_loop(self) -> None:
        """Close the stopped loop with its transports and their sockets."""
        with warnings.catch_warnings():
            # Transports warn if they were not closed in order.
            warnings.simplefilter("ignore", ResourceWarning)
            if isinstance(self.loop, PlainLoop):
                self.loop.drop_transports()
            self.loop.close()
            for sock in list(self._sockets):
                sock.close()


class PlainLoop(asyncio.SelectorEventLoop):
    """A loop for hosts without uvloop. Like uvloop's, it may be closed while it has transports.

    Python's transports close their sockets in a callback, which needs a running loop, and warn if it was not called. So
    this loop keeps a set of its transports, and does the work of the callback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def _make_socket_transport(self, *arguments: Any, **named: Any) -> Any:
        transport = super()._make_socket_transport(*arguments, **named)  # type: ignore[misc]
        self._made.add(transport)
        return transport

    def drop_transports(self) -> None:
        """Close the sockets of all transports without notifying the protocols. The loop has stopped."""
        for transport in list(self._made):
            if transport.get_extra_info("socket").fileno() >= 0:
                transport.set_protocol(asyncio.Protocol())
                transport._call_connection_lost(None)


def killable_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed, else a `PlainLoop`."""
    try:
        import uvloop
    except ImportError:
        return PlainLoop()
    return uvloop.new_event_loop()


class _Acceptor(Acceptor):
    """Reports each socket to the runtime, and each peer to the network."""

    def __init__(self, runtime: KillableRuntime, sockets: list[socket.socket], accept: MakeProtocol) -> None:
        super().__init__(runtime.loop, sockets, accept)
        self._runtime = runtime

    def connected(self, sock: socket.socket, address: Any, protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        self._runtime.keep_socket(sock)
        return self._runtime.linked(lambda: protocol, self._runtime.network.connecting(address[1]))()

    def failed(self, error: OSError) -> None:
        if not self._runtime.is_cut_off:
            super().failed(error)


class _Handover(asyncio.Protocol):
    """Puts a link between a transport and its protocol when they connect. After that it is not used."""

    def __init__(self, runtime: KillableRuntime, protocol: asyncio.BaseProtocol, peer: int) -> None:
        self._runtime = runtime
        self._protocol = protocol
        self._peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.set_protocol(self._protocol)
        link = _Link(self._runtime, cast(asyncio.Transport, transport), self._peer)
        self._runtime.add_link(link)
        self._protocol.connection_made(link)


class _Link(asyncio.Transport):
    """One end of a connection, which reads nothing while this node and its peer are apart."""

    def __init__(self, runtime: KillableRuntime, transport: asyncio.Transport, peer: int) -> None:
        super().__init__()
        self._runtime = runtime
        self._transport = transport
        self._peer = peer
        self._is_cut = False
        #: True while the protocol has paused reading
        self._is_paused = False

    def follow(self) -> None:
        """Read or pause, depending on the network."""
        cut = self._runtime.network.are_apart(self._runtime.node_id, self._peer)
        if cut != self._is_cut:
            self._is_cut = cut
            self._read_or_not()

    def read_no_more(self) -> None:
        """Stop reading, because the node was killed."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._read_or_not()

    def is_reading(self) -> bool:
        return not self._is_paused

    def _read_or_not(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_cut or self._is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self._transport.writelines(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()


class KillableDisk(VolatileDisk):
    """The operating system's disk until `die`; after that every call that would change or open something fails. A
    cluster's directories are temporary, so no node waits for a device."""

    def __init__(self, max_open_files: int | None = None) -> None:
        super().__init__(max_open_files=max_open_files)
        self.descriptors: _Descriptors = _Descriptors(max_open_files)
        self._is_dead = False
        self._locks: list[OsLock] = []

    def die(self) -> None:
        """Close the files and release the locks."""
        self._is_dead = True
        self.descriptors.die()
        for lock in self._locks:
            lock.release()

    def _alive(self) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the node was killed")

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self._alive()
        return super().open(path, create=create)

    def make_dirs(self, path: str) -> None:
        self._alive()
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._alive()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._alive()
        super().unlink(path)

    def link(self, source: str, target: str) -> None:
        self._alive()
        super().link(source, target)

    def copy(self, source: str, target: str, *, keeps_time: bool = False) -> int:
        self._alive()
        return super().copy(source, target, keeps_time=keeps_time)

    def remove_dir(self, path: str) -> None:
        self._alive()
        super().remove_dir(path)

    def lock(self, path: str) -> OsLock:
        self._alive()
        lock = super().lock(path)
        self._locks.append(lock)
        return lock


class _Descriptors(Descriptors):
    """Descriptors that can be closed all at once."""

    def __init__(self, limit: int | None) -> None:
        super().__init__(limit)
        self._is_dead = False

    def die(self) -> None:
        self._is_dead = True
        for holder in list(self._holders):
            holder.close()

    def make(self, path: str, *, create: bool) -> Descriptor:
        if self._is_dead:
            raise OSError(errno.EIO, "the node was killed")
        return super().make(path, create=create)
