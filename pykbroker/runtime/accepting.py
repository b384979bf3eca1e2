"""Accepts the connections of one listener from its listening sockets.

Refuses connections before a transport is made for them, limits the number of connections that are accepted in one turn
of the loop, and continues after an accept() that failed. Not responsible for choosing the connections to refuse
(`accept`).

The server of the event loop is not used, because it cannot refuse a connection before it makes a transport. The server
of uvloop also closes its listening socket for good after one accept() that failed because no descriptor was left.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from pykbroker.runtime.line_limit import LineLimit

logger = logging.getLogger(__name__)

_MOST_IN_A_TURN: Final = 16
_AGAIN_SECONDS: Final = 0.1

#: Returns the protocol of a new connection, or None if the connection must be closed at once.
MakeProtocol: TypeAlias = Callable[[], "asyncio.BaseProtocol | None"]


class Acceptor:
    """A `ListeningSocket`. `sockets`: sockets that listen, do not block, and have the same port. `name`: their name in
    log lines, without which it is the port."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: Sequence[socket.socket],
        accept: MakeProtocol,
        name: str | None = None,
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._accept = accept
        address: Any = sockets[0].getsockname()
        self.port: int = address[1] if isinstance(address, tuple) else 0
        self._name = name or f"port {self.port}"
        self._connecting: set[asyncio.Task[object]] = set()
        self._lines = LineLimit(loop.time)

    async def serve(self) -> None:
        for sock in self._sockets:
            self._loop.add_reader(sock, self._take_some, sock)

    def close(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()

    def connected(self, sock: socket.socket, address: Any, protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
        """Return the protocol for the transport of a new connection. If it raises OSError, it has closed the socket."""
        return protocol

    def failed(self, error: OSError) -> None:
        """Log that a connection could not be accepted. The caller tries again after a pause."""
        if (more := self._lines.take("")) is not None:
            logger.warning("A connection to %s cannot be accepted: %s%s", self._name, error.strerror or error, more)

    def _take_some(self, listening: socket.socket) -> None:
        for _ in range(_MOST_IN_A_TURN):
            try:
                sock, address = listening.accept()
                protocol = self._accept()
                if protocol is None:
                    sock.close()
                    continue
                try:
                    outer = self.connected(sock, address, protocol)
                except OSError as error:
                    protocol.connection_lost(error)
                    raise
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Without a pause, the error would be repeated in every turn of the loop as long as a client waits.
                self._loop.remove_reader(listening)
                self._loop.call_later(_AGAIN_SECONDS, self._serve_again, listening)
                self.failed(error)
                return
            sock.setblocking(False)
            task = self._loop.create_task(self._connect(sock, outer, protocol), name="accept a connection")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, sock: socket.socket, outer: asyncio.BaseProtocol, protocol: asyncio.BaseProtocol) -> None:
        try:
            if sock.family != socket.AF_UNIX:
                # Python's loop does not set TCP_NODELAY here, because the listening socket was made without a protocol
                # number.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: outer, sock)
        except Exception as error:  # noqa: BLE001  # whatever it is, others are served
            sock.close()
            protocol.connection_lost(error)
            logger.warning("A connection to %s cannot be served: %s", self._name, error)

    def _serve_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._take_some, listening)
