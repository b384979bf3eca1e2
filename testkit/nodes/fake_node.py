"""A listener that does the same with each request, for tests of clients that meet a broken node."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Reaction = Callable[[socket.socket, bytes], bool]
"""It gets the frame of a request, without its size. It returns False if the node is to close the connection."""


class FakeNode:
    """Listens on loopback, and serves one connection at a time."""

    def __init__(self, react: Reaction) -> None:
        self._react = react
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        #: that a connection has ended
        self.closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End. The client has closed its connections before."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    request = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
                    if not self._react(connection, request):
                        break
            self.closed.set()
