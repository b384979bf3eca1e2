"""A client on a real socket, plain or with TLS, that reads only when the test does it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Self

PATIENCE_SECONDS = 30


class SocketClient:
    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.socket()
        # The kernel buffers little of the bytes that this client does not read.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self.socket.setblocking(False)
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if tls is None else tls.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def connect(self, port: int) -> Self:
        await self._loop.sock_connect(self.socket, ("127.0.0.1", port))
        while self._tls is not None:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                assert await self._fill(65536)
            else:
                await self._flush()
                break
        return self

    async def send(self, data: bytes) -> None:
        if self._tls is None:
            await self._loop.sock_sendall(self.socket, data)
        else:
            self._tls.write(data)
            await self._flush()

    async def finish(self) -> None:
        """Send no more, and announce that."""
        if self._tls is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                await self._flush()
        self.socket.shutdown(socket.SHUT_WR)

    async def receive_some(self, count: int) -> bytes:
        """Return up to this many bytes; none at the end."""
        if self._tls is None:
            return await asyncio.wait_for(self._loop.sock_recv(self.socket, count), PATIENCE_SECONDS)
        while True:
            try:
                return self._tls.read(count)
            except ssl.SSLWantReadError:
                # An update of keys may need a response.
                await self._flush()
                if not await self._fill(count):
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    async def receive(self, count: int, at_once: int = 1 << 20) -> bytes:
        got = bytearray()
        while len(got) < count:
            data = await self.receive_some(min(at_once, count - len(got)))
            assert data, f"closed after {len(got)} of {count}"
            got += data
        return bytes(got)

    def close(self) -> None:
        self.socket.close()

    async def _fill(self, count: int) -> bool:
        data = await asyncio.wait_for(self._loop.sock_recv(self.socket, count), PATIENCE_SECONDS)
        self._incoming.write(data)
        return bool(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._loop.sock_sendall(self.socket, self._outgoing.read())
