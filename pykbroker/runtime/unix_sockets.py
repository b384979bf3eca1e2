"""Unix sockets to which only their owner may connect."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat

from pykbroker.runtime.accepting import Acceptor, MakeProtocol
from pykbroker.socket_paths import short_path


def bind_unix(path: str) -> socket.socket:
    """Return a bound socket of mode 0600 that listens. A socket at `path` that no process answers is replaced. Raises
    OSError if anything else is at `path`, or if the name of the file is too long. Each error names the path."""
    try:
        with short_path(path) as usable:
            _clear(usable)
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.bind(usable)
                # The mode is set before the socket listens, so that no other user can connect before that.
                os.chmod(usable, 0o600)
                sock.listen(16)
                sock.setblocking(False)
            except BaseException:
                sock.close()
                raise
    except OSError as error:
        raise OSError(error.errno, f"the socket {path} cannot be bound: {error.strerror or error}") from error
    return sock


def _clear(path: str) -> None:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        raise OSError(errno.EEXIST, "something else is there")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
    raise OSError(errno.EADDRINUSE, "another process answers there")


class UnixSocket(Acceptor):
    """A listening socket at a path, which is removed when the socket closes. Raises OSError as `bind_unix` does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: str, accept: MakeProtocol) -> None:
        # The system may know the socket under another path (socket_paths.py).
        super().__init__(loop, [bind_unix(path)], accept, f"socket {path}")
        self._path = path
        self._inode = os.lstat(path).st_ino

    def close(self) -> None:
        super().close()
        try:
            # Another process may have taken over the path in the meantime.
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except FileNotFoundError:
            pass
