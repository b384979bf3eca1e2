"""Which files are open: each has a descriptor while it is used, and their number is bounded.

Responsible for opening, and for giving up the descriptors that were not used for longest. Not responsible for what is
read or written with them (files.py). Calls may come from several threads.
"""

from __future__ import annotations

import errno
import os
import resource

from pykbroker_log.disk import FileClosed

_MAX_OPEN_FILES = 16 * 1024


class Descriptor:
    """Closed when the last reference goes: a user of the number holds the object, so a descriptor is never closed, let
    alone become another file's, under a call in another thread or a region that waits to be sent."""

    __slots__ = ("_all", "fd", "regions")

    def __init__(self, fd: int, registry: dict[int, None]) -> None:
        self.fd = fd
        self.regions = 0
        self._all = registry
        registry[fd] = None

    def __del__(self) -> None:
        # First: closed, the number may be another file's at once.
        self._all.pop(self.fd, None)
        try:
            os.close(self.fd)
        except OSError:
            pass  # the device failed; the writer has been told by fsync


class Holder:
    """An open file, whose descriptor comes and goes. The path is needed again, so its owner closes it before the name
    changes."""

    __slots__ = ("_descriptors", "descriptor", "path", "recent")

    def __init__(self, descriptors: Descriptors, path: str, *, create: bool) -> None:
        self._descriptors = descriptors
        #: "" once it is closed
        self.path = path
        #: None while it has been given up
        self.descriptor: Descriptor | None = descriptors.make(path, create=create)
        #: used since the last search for a descriptor to give up
        self.recent = True
        descriptors.keep(self)

    def take(self) -> Descriptor:
        """The caller keeps it for as long as it uses the number. Raises FileClosed, OSError."""
        self.recent = True
        return self.descriptor or self._reopen()

    def _reopen(self) -> Descriptor:
        if not self.path:
            raise FileClosed(errno.ENOENT, "the file is closed")
        descriptor = self._descriptors.make(self.path, create=False)
        if self.descriptor is None:
            self.descriptor = descriptor
            self._descriptors.keep(self)
        # Else two threads at once: theirs stays, this one is for this call.
        return descriptor

    def close(self) -> None:
        self.path = ""  # a call after this one finds no file
        self._descriptors.forget(self)
        self.descriptor = None


class Descriptors:
    """`limit`: descriptors of files and of regions, by default half of what the process may open; half of these for
    regions at most."""

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = _MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, soft // 2)
        self._limit = max(8, limit)
        # In the order of opening; a file that was used since the last look goes to the end instead of being closed.
        self._holders: dict[Holder, None] = {}
        # All that are open, those that only a call or a region still holds too.
        self._open: dict[int, None] = {}
        #: how many of them regions hold
        self.lent = 0

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def make(self, path: str, *, create: bool) -> Descriptor:
        """Raises OSError."""
        return Descriptor(_open(path, create), self._open)

    def keep(self, holder: Holder) -> None:
        """It has a descriptor from here on; others may have to give up theirs."""
        self._holders[holder] = None
        looks = 2 * len(self._holders)
        while len(self._open) > self._limit and looks > 0:
            looks -= 1
            try:
                oldest = next(iter(self._holders))
            except (StopIteration, RuntimeError):
                return  # another thread is at it
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
        """Not where regions keep so many open already that no other may be kept: slow connections hold on to theirs
        for as long as they like."""
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
        # As the folders that are made here: a bootstrap.checkpoint has keys of SCRAM, other files are people's data.
        return os.open(path, flags | os.O_CREAT, 0o600)
    try:
        return os.open(path, flags)
    except OSError as error:
        # A file that may only be read: Kafka's metadata snapshots are mode 0400, a damaged disk is remounted so.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
