"""An address that stays while brokers come and go, like a cluster's name in DNS or its load balancer.

An application that begins again has only its bootstrap servers, and in a roll by new nodes each of these goes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

CHUNK = 1 << 16
#: Connections that are carried at once. Clients ask through the door and then go to the brokers themselves.
CONNECTIONS = 500


class FrontDoor:
    """Carries each connection to a broker that runs, and closes it when the broker or the client does."""

    def __init__(self, brokers: Callable[[], Sequence[str]]) -> None:
        """`brokers` returns the addresses of those that run."""
        self._brokers = brokers
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
        self._carriers = ThreadPoolExecutor(2 * CONNECTIONS)
        self._carried: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="front door", daemon=True).start()

    @property
    def address(self) -> str:
        return f"localhost:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        # A thread that waits in accept() does not learn that its socket was closed.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in list(self._carried):
            _hang_up(end)
        self._carriers.shutdown()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._carriers.submit(self._carry, client)

    def _carry(self, client: socket.socket) -> None:
        broker = self._reach()
        if broker is None:
            client.close()
            return
        with client, broker:
            self._carried.update({client, broker})
            answers = self._carriers.submit(_pour, broker, client)
            _pour(client, broker)
            answers.result()
            self._carried.difference_update({client, broker})

    def _reach(self) -> socket.socket | None:
        for address in self._brokers():
            host, _, port = address.rpartition(":")
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection((host, int(port)))
        return None


def _pour(source: socket.socket, sink: socket.socket) -> None:
    """Carry bytes until one of both ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    for end in (source, sink):
        _hang_up(end)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
