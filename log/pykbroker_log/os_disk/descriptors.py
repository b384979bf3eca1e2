"""Open files: each has a descriptor while it is used, and the number of descriptors is bounded.

Responsible for opening files, and for closing the descriptors that were unused for longest. Not responsible for what
is read or written with them (files.py). Calls may come from several threads.
"""

from __future__ import annotations

import errno
import os
import resource

from pykbroker_log.disk import FileClosed

_MAX_OPEN_FILES = 16 * 1024


class Descriptor:
    """A descriptor that is closed when its last reference goes. Each user of the number holds the object, so it is
    never closed, or reused for another file, while another thread or a region that waits to be sent uses it."""

    __slots__ = ("_all", "fd", "regions")

    def __init__(self, fd: int, registry: dict[int, None]) -> None:
        self.fd = fd
        self.regions = 0
        self._all = registry
        registry[fd] = None

    def __del__(self) -> None:
        # Remove the number first, because once it is closed another file may get it at once.
        self._all.pop(self.fd, None)
        try:
            os.close(self.fd)
        except OSError:
            pass  # the device failed, and fsync has raised that to the writer


class Holder:
    """An open file whose descriptor is closed and reopened as needed. Reopening needs the path, so the owner closes the
    file before its name changes."""

    __slots__ = ("_descriptors", "descriptor", "path", "recent")

    def __init__(self, descriptors: Descriptors, path: str, *, create: bool) -> None:
        self._descriptors = descriptors
        #: "" once it is closed
        self.path = path
        #: None while the descriptor is closed to stay below the limit
        self.descriptor: Descriptor | None = descriptors.make(path, create=create)
        #: used since the last search for a descriptor to close
        self.recent = True
        descriptors.keep(self)

    def take(self) -> Descriptor:
        """Return the descriptor; the caller keeps the object for as long as it uses the number. Raises FileClosed,
        OSError."""
        self.recent = True
        return self.descriptor or self._reopen()

    def _reopen(self) -> Descriptor:
        if not self.path:
            raise FileClosed(errno.ENOENT, "the file is closed")
        descriptor = self._descriptors.make(self.path, create=False)
        if self.descriptor is None:
            self.descriptor = descriptor
            self._descriptors.keep(self)
        # If another thread has reopened the file at the same time, its descriptor is kept, and this one is only for
        # this call.
        return descriptor

    def renew(self) -> Descriptor:
        """Return a new descriptor, for the file that the path stands for now. Raises FileClosed, OSError."""
        self.descriptor = None
        return self._reopen()

    def close(self) -> None:
        self.path = ""  # a call after this one finds no file
        self._descriptors.forget(self)
        self.descriptor = None


class Descriptors:
    """All open descriptors. `limit` counts those of files and of regions, by default half of what the process may open.
    Regions may hold at most half of the limit."""

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = _MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, soft // 2)
        self._limit = max(8, limit)
        # In the order of opening. A file that was used since the last search moves to the end instead of being closed.
        self._holders: dict[Holder, None] = {}
        # All open descriptors, also those that only a call or a region still holds.
        self._open: dict[int, None] = {}
        #: the number of descriptors that regions hold
        self.lent = 0

    def __len__(self) -> int:
        """Return the number of open descriptors."""
        return len(self._open)

    def make(self, path: str, *, create: bool) -> Descriptor:
        """Raises OSError."""
        return Descriptor(_open(path, create), self._open)

    def keep(self, holder: Holder) -> None:
        """Add a file that has got a descriptor; others may be closed to stay below the limit."""
        self._holders[holder] = None
        looks = 2 * len(self._holders)
        while len(self._open) > self._limit and looks > 0:
            looks -= 1
            try:
                oldest = next(iter(self._holders))
            except (StopIteration, RuntimeError):
                return  # another thread does the same now
            self._holders.pop(oldest, None)
            descriptor = oldest.descriptor
            if oldest.recent or (descriptor is not None and descriptor.regions):
                oldest.recent = False
                self._holders[oldest] = None
            else:
                oldest.descriptor = None

    def forget(self, holder: Holder) -> None:
        self._holders.pop(holder, None)

    # -- regions

    def may_lend(self, descriptor: Descriptor) -> bool:
        """Return False if regions hold half of the limit already: slow connections may keep their regions for an
        unlimited time."""
        return bool(descriptor.regions) or self.lent < self._limit // 2

    def lend(self, descriptor: Descriptor) -> None:
        if not descriptor.regions:
            self.lent += 1
        descriptor.regions += 1

    def give_back(self, descriptor: Descriptor) -> None:
        descriptor.regions -= 1
        if not descriptor.regions:
            self.lent -= 1


def _open(path: str, create: bool) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC
    if create:
        # As private as the folders: a bootstrap.checkpoint contains SCRAM keys, and other files contain records.
        return os.open(path, flags | os.O_CREAT, 0o600)
    try:
        return os.open(path, flags)
    except OSError as error:
        # The file is read-only: Kafka's metadata snapshots are mode 0400, and a damaged disk is remounted read-only.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
