"""Finds out if another program listens on a port, before a start writes anything."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable


def is_taken(host: str, port: int) -> bool:
    """Return True if another program listens on this port. A host without an address is not judged here."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return any(_is_taken_at(family, address[:2]) for family, *_, address in found)


def _is_taken_at(family: int, address: tuple[object, ...]) -> bool:
    try:
        # The socket does not listen, so no client gets a connection that ends at once.
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def check_free(wanted: Iterable[tuple[str, str, int]], advice: str) -> None:
    """Raise OSError for the first (name, host, port) that is taken; its message ends with `advice`. Port 0 is free."""
    for name, host, port in wanted:
        if port and is_taken(host, port):
            raise OSError(
                errno.EADDRINUSE,
                f"{name} cannot be bound to {host or '*'}:{port}: Address already in use. Another program listens "
                f"there, perhaps another node: {advice}",
            )
