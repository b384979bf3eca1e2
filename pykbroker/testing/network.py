"""The network between the nodes of a cluster in one process: the pairs of nodes that can reach each other.

Responsible for mapping ports to nodes, and for the nodes that are apart. Not responsible for holding traffic back: each
node does that at its own end of a connection (killable.py). Several threads may call it.

Both ends of a connection between two nodes are known. Before a node connects, it registers its own port of the
connection, so the accepting node can find out whether the peer is a node or a client.
"""

from __future__ import annotations

import socket
import sys
import weakref
from collections.abc import Iterable

HOST = "127.0.0.1"
#: All peers that are not nodes, as a member of a group.
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
        """Return a free port that no other program gets before `close`. Raises OSError.

        On Linux a bound socket that never listens reserves the port: connections to the port are refused, and the node
        itself can listen on it, because both sockets reuse addresses. On other systems another program may get the port
        while the node is down.
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
        """Release the ports."""
        for sock in self._reserved:
            sock.close()
        self._reserved.clear()

    # -- the nodes of ports

    def listening(self, port: int) -> int | None:
        """Return the node that listens on the port, or None."""
        return self._listening.get(port)

    def connecting(self, port: int) -> int:
        """Return the node that connects from the port, or CLIENTS."""
        return self._connecting.get(port, CLIENTS)

    def connects(self, node_id: int, sock: socket.socket) -> None:
        """Register that a node is about to connect with this socket, which is bound to its port already."""
        port: int = sock.getsockname()[1]
        self._connecting[port] = node_id
        weakref.finalize(sock, self._connecting.pop, port, None)

    # -- nodes that are apart

    def partition(self, groups: Iterable[Iterable[int]], nodes: Iterable[int]) -> None:
        """Separate the members of different groups. The members of `nodes` in no group form one more group; if CLIENTS
        are in no group, they reach every node. Raises ValueError."""
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
