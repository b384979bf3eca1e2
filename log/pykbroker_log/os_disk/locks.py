"""The lock of a directory: it excludes other processes, Apache Kafka's too, and other brokers of this process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def readers_lock(path: str) -> Iterator[None]:
    """Keep the directory's lock from every broker inside this context. Several readers may have it at once. Without a
    lock file no broker has used the directory. Raises BlockingIOError if a broker uses it."""
    if os.path.realpath(path) in OsLock._held:
        raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
        yield
    finally:
        os.close(fd)


class OsLock:
    # POSIX locks belong to the process and vanish when *any* descriptor of the file closes, so two brokers in one
    # process need this set as well. Java's FileChannel takes the same kind of lock, so pykbroker and Apache Kafka
    # exclude each other.
    _held: set[str] = set()

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._fd = -1
        if self._path in OsLock._held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
        self._fd = fd
        OsLock._held.add(self._path)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            OsLock._held.discard(self._path)
            os.close(fd)
