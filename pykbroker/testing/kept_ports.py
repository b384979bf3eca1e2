"""The ports of a node that ends and starts again: clients that connect in between wait, and are not refused.

Responsible for the listening sockets between two runs of one node. Each run gets duplicates of them, which it closes.
Not responsible for accepting connections (the runtime).
"""

from __future__ import annotations

import socket

from pykbroker.runtime import bind_sockets


class KeptPorts:
    """Call `begin_run` before each run, and pass `bind` to its runtime. A node binds its listeners in the same order in
    each run, so the order finds the sockets, also where the configuration has port 0."""

    def __init__(self) -> None:
        self._kept: list[list[socket.socket]] = []
        self._next = 0

    def begin_run(self) -> None:
        self._next = 0

    def bind(self, host: str, port: int, backlog: int) -> list[socket.socket]:
        """Return listening sockets, as `bind_sockets` does: those of the earlier runs, or new ones. Raises OSError."""
        if self._next == len(self._kept):
            self._kept.append(bind_sockets(host, port, backlog))
        sockets = self._kept[self._next]
        self._next += 1
        return [sock.dup() for sock in sockets]

    def close(self) -> None:
        """Release the ports. Connections that wait are ended."""
        for sockets in self._kept:
            for sock in sockets:
                sock.close()
        self._kept.clear()
