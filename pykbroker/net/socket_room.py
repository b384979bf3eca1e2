"""The number of bytes that a socket still takes before it is full.

Responsible for asking the kernel for it. Not responsible for the use of the number.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from typing import Any

# On Linux TIOCOUTQ counts the bytes that the peer has not acknowledged; on other systems it counts something else.
_CAN_SAY = sys.platform == "linux"
_UNKNOWN_BYTES = 64 * 1024


class SocketRoom:
    """The room of one connected TCP socket."""

    __slots__ = ("_space", "fd")

    def __init__(self, sock: Any) -> None:
        """`sock`: a socket, or the "socket" of a transport's extra info. Do not call `free_bytes` after the socket is
        closed."""
        self.fd: int = sock.fileno()
        # The kernel may later enlarge the buffer, but never makes it smaller. A quarter of it is enough for the
        # kernel's own structures, which SO_SNDBUF includes.
        self._space: int = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) * 3 // 4 if _CAN_SAY else 0

    def free_bytes(self) -> int:
        """Return the number of bytes that the socket takes at once, or a smaller number. On systems other than Linux
        the number is a guess."""
        if not self._space:
            return _UNKNOWN_BYTES
        waiting = fcntl.ioctl(self.fd, termios.TIOCOUTQ, b"\0\0\0\0")
        return self._space - int.from_bytes(waiting, sys.byteorder)
