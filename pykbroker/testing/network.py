"""The network between the nodes of a cluster in one process: which of them reach each other.

Responsible for knowing to which node a port belongs, and which nodes are apart. Not responsible for holding traffic
back: each node does that at its own end of a connection (killable.py). Calls may come from several threads.

A connection between two nodes is known at both ends. The node that connects says from which port it does, before it
connects; so the node that accepts finds out whether it is a node's or a client's.
"""

from __future__ import annotations

import socket
import sys
import weakref
from collections.abc import Iterable

HOST = "127.0.0.1"
#: Everything that is no node, as a member of a group.
CLIENTS = 0


class Network:
    """`reserve` the ports of every node, then `partition` and `heal` at any time."""

    def __init__(self) -> None:
        self._listening: dict[int, int] = {}
        self._connecting: dict[int, int] = {}
        self._reserved: list[socket.socket] = []
        #: member -> number of its group; members of different groups are apart
        self._groups: dict[int, int] = {}

    def reserve(self, node_id: int) -> int:
        """A free port that nothing else gets before `close`. Raises OSError.

        On Linux a socket that is bound and never listens keeps it: connections to it are refused, and the node itself
        may listen beside it because both sockets reuse addresses. Elsewhere the port may be lost while the node is
        down.
        """
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, 0))
            port: int = sock.getsockname()[1]
        except OSError:
            sock.close()
            raise
        self._listening[port] = node_id
        if sys.platform == "linux":
            self._reserved.append(sock)
        else:
            sock.close()
        return port

    def close(self) -> None:
        """Give the ports back."""
        for sock in self._reserved:
            sock.close()
        self._reserved.clear()

    # -- who is who

    def listening(self, port: int) -> int | None:
        """The node that listens there."""
        return self._listening.get(port)

    def connecting(self, port: int) -> int:
        """The node that connects from there, or CLIENTS."""
        return self._connecting.get(port, CLIENTS)

    def connects(self, node_id: int, sock: socket.socket) -> None:
        """A node is about to connect with this socket, which has its port."""
        port: int = sock.getsockname()[1]
        self._connecting[port] = node_id
        weakref.finalize(sock, self._connecting.pop, port, None)

    # -- which are apart

    def partition(self, groups: Iterable[Iterable[int]], nodes: Iterable[int]) -> None:
        """Members of different groups are apart. Those of `nodes` in no group are one more; CLIENTS in no group reach
        every node. Raises ValueError."""
        known = {*nodes, CLIENTS}
        found: dict[int, int] = {}
        for number, group in enumerate(groups, start=1):
            for node_id in group:
                if node_id not in known:
                    raise ValueError(f"there is no node {node_id}")
                if found.setdefault(node_id, number) != number:
                    raise ValueError(f"{f'node {node_id}' if node_id else 'CLIENTS'} is in two groups")
        self._groups = found

    def heal(self) -> None:
        self._groups = {}

    def are_apart(self, one: int, other: int) -> bool:
        groups = self._groups
        if CLIENTS in (one, other) and CLIENTS not in groups:
            return False
        return groups.get(one, 0) != groups.get(other, 0)
