"""A plain blocking connection that sends frames, good and broken ones, and returns the answer to each.

Not responsible for the meaning of a frame (session.py).
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from enum import Enum


class Verdict(Enum):
    """The outcome if there is no answer."""

    CLOSED = "the connection was closed"
    SILENT = "no answer"


class Link:
    """One connection; opened at the first use, and again after `receive` has returned that it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A node may close before it has read everything, with an answer or without; `receive` finds out.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | Verdict:
        """Return the next answer without its size."""
        try:
            size = self._read(4, timeout_s)
            return self._read(int.from_bytes(size, "big"), timeout_s)
        except TimeoutError:
            self.close()
            return Verdict.SILENT
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self.close()
            return Verdict.CLOSED

    def is_broken(self) -> bool:
        """Return True if the other side has closed a connection that this side has open."""
        if self._socket is None or not self.ready():
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return True

    def ready(self) -> bool:
        """Return True if an answer, or a part of it, has arrived."""
        return self._socket is not None and bool(select.select([self._socket], [], [], 0)[0])

    def _read(self, count: int, timeout_s: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(timeout_s)
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
