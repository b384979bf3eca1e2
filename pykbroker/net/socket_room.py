"""The number of bytes that a socket takes without being full.

Responsible for the kernel's figures of it. Not responsible for their use.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from typing import Any

# Linux counts the bytes that the peer has not acknowledged; elsewhere the same number has another meaning.
_CAN_SAY = sys.platform == "linux"
_UNKNOWN_BYTES = 64 * 1024


class SocketRoom:
    """The room of one connected TCP socket."""

    __slots__ = ("_space", "fd")

    def __init__(self, sock: Any) -> None:
        """`sock`: a socket, or what a transport has for it. Do not call it after the socket is closed."""
        self.fd: int = sock.fileno()
        # The kernel makes it larger, never smaller. It counts its own structures too, for which a quarter is enough.
        self._space: int = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) * 3 // 4 if _CAN_SAY else 0

    def free_bytes(self) -> int:
        """Return how many bytes the socket takes at once, or fewer. On other systems than Linux it is a guess."""
        if not self._space:
            return _UNKNOWN_BYTES
        waiting = fcntl.ioctl(self.fd, termios.TIOCOUTQ, b"\0\0\0\0")
        return self._space - int.from_bytes(waiting, sys.byteorder)
