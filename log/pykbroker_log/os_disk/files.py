"""Reading and writing a file of the operating system, and sending parts of it.

Responsible for the system calls on an open file: short reads and writes, and reads that must not wait for the device.
Not responsible for descriptors, which are closed and reopened (descriptors.py), nor for what is in memory
(page_cache.py).

Invariant: a file that has another name too is replaced by a copy before it is written to or cut (links.py). A write
looks at the links only if this process has changed any since it looked last. Another process changes the links of a
directory only while it has the directory's lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
from _thread import get_ident
from collections.abc import Callable, Sequence

from pykbroker_log.disk import Buffer, ColdRead, FileReader
from pykbroker_log.os_disk import links
from pykbroker_log.os_disk.descriptors import Descriptor, Descriptors, Holder
from pykbroker_log.os_disk.mapped import MappedFile
from pykbroker_log.os_disk.page_cache import NO_WAIT, PageCache, write_back

#: Called with the path of a file before it is mapped.
OnMap = Callable[[str], None]

# writev(2) takes at most IOV_MAX (1024 on Linux and macOS) buffers.
_MAX_BUFFERS = 1024
# A read of up to this size that must not wait is tried at once. For a larger one residency is checked first, so that
# no bytes are copied in vain.
_TRY_BYTES = 64 * 1024

#: True if regions can be sent on this system.
SENDS_FILES = hasattr(os, "sendfile")
_HAS_PWRITEV = hasattr(os, "pwritev")
# fdatasync also writes the size, which is enough for a reader after a crash; fsync would add the time stamps. On macOS
# neither empties the drive's cache, only F_FULLFSYNC does.
FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class OsRegion:
    __slots__ = ("_cache", "_descriptor", "_descriptors", "_length", "_offset")

    def __init__(
        self, descriptors: Descriptors, cache: PageCache, descriptor: Descriptor, offset: int, length: int
    ) -> None:
        self._descriptors = descriptors
        self._cache = cache
        self._descriptor = descriptor
        self._offset = offset
        self._length = length
        descriptors.lend(descriptor)

    def __del__(self) -> None:
        self._descriptors.give_back(self._descriptor)

    def __len__(self) -> int:
        return self._length

    def is_resident(self, position: int, length: int) -> bool:
        """Return True if `send` of these bytes does not wait for a device."""
        return self._cache.is_resident(self._descriptor.fd, self._offset + position, length)

    def load(self, position: int, length: int) -> None:
        """Load the bytes and wait for the device; call it on a thread."""
        self._cache.load(self._descriptor.fd, self._offset + position, length)

    def send(self, socket: int, position: int, length: int) -> int:
        """Send with sendfile(2), and return how many bytes the socket took. Raises BlockingIOError if it takes none,
        OSError, and EIO for bytes that are no longer in the file."""
        count = os.sendfile(socket, self._descriptor.fd, self._offset + position, length)
        if not count:
            raise OSError(errno.EIO, "the file is shorter than it was")
        return count

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor.fd, min(size, self._length - position), self._offset + position)

    def part(self, position: int, length: int) -> OsRegion:
        return OsRegion(self._descriptors, self._cache, self._descriptor, self._offset + position, length)


class OsFile(Holder):
    """An open file of the operating system. Calls may come from several threads."""

    __slots__ = ("_cache", "_looked_at", "_on_map")

    #: False for files that need not survive a loss of power
    IS_DURABLE = True

    def __init__(
        self, descriptors: Descriptors, cache: PageCache, path: str, *, create: bool, on_map: OnMap | None = None
    ) -> None:
        super().__init__(descriptors, path, create=create)
        self._cache = cache
        self._on_map = on_map
        # `LinkChanges.count` when this file was last known to have one name, or -1
        self._looked_at = -1

    def pread(self, size: int, offset: int) -> bytes:
        """Return fewer bytes only at the end of the file. Raises ColdRead within `without_waiting`."""
        descriptor = self.take()
        fd = descriptor.fd
        hurried = self._cache.hurried
        if hurried and hurried == get_ident():
            if size <= _TRY_BYTES and NO_WAIT:
                return self._pread_at_once(fd, size, offset)
            if not self._cache.is_resident(fd, offset, size):
                # Bytes beyond the end of the file are never in memory.
                held = min(size, os.fstat(fd).st_size - offset)
                if held > 0 and (held == size or not self._cache.is_resident(fd, offset, held)):
                    raise ColdRead(self, offset, held)
        data = os.pread(fd, size, offset)
        if len(data) == size or not data:
            return data
        # Fewer bytes: this is the end of the file, or a signal interrupted a large read.
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def reader(self) -> FileReader:
        if self._on_map is None:
            return self
        self._on_map(self.path)
        return MappedFile(self)

    def _pread_at_once(self, fd: int, size: int, offset: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        got = 0
        while got < size:
            try:
                count = os.preadv(fd, [view[got:]], offset + got, NO_WAIT)
            except BlockingIOError:
                raise ColdRead(self, offset, size) from None
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                # The file system does not support reads without waiting.
                count = os.preadv(fd, [view[got:]], offset + got)
            if not count:
                break
            got += count
        return bytes(view[:got])

    def load(self, offset: int, length: int) -> None:
        """Load the bytes and wait for the device; call it on a thread."""
        self._cache.load(self.take().fd, offset, length)

    def region(self, offset: int, length: int) -> OsRegion | None:
        """Return None if no further descriptor may be kept open for a region. Called on one thread."""
        descriptor = self.take()
        if not self._descriptors.may_lend(descriptor):
            return None
        return OsRegion(self._descriptors, self._cache, descriptor, offset, length)

    def write_back(self, offset: int, length: int) -> None:
        """Begin to write dirty pages to the device; call it on a thread. Promises no durability."""
        write_back(self.take().fd, offset, length)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        descriptor = self.take() if self._looked_at == links.LinkChanges.count else self._own()
        if _HAS_PWRITEV and len(buffers) <= _MAX_BUFFERS:
            written = os.pwritev(descriptor.fd, buffers, offset)
            if written == total:
                return total
        else:
            written = 0
        self._write_rest(descriptor.fd, buffers, offset, written)
        return total

    @staticmethod
    def _write_rest(fd: int, buffers: Sequence[Buffer], offset: int, written: int) -> None:
        """The slow path after a short write (a disk nearly full, a signal, a platform without pwritev)."""
        skip = written
        position = offset + written
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if skip >= len(view):
                skip -= len(view)
                continue
            view = view[skip:]
            skip = 0
            while view:
                count = os.pwrite(fd, view, position)
                if count == 0:
                    raise OSError(errno.EIO, "wrote nothing")
                position += count
                view = view[count:]

    def truncate(self, size: int) -> None:
        descriptor = self._own(size)
        os.ftruncate(descriptor.fd, size)

    def _own(self, keep: int | None = None) -> Descriptor:
        """Return the descriptor of a file that has no other name. If there was another name, the file is a copy of the
        first `keep` bytes, or of all if `keep` is None. Raises OSError."""
        changes, path = links.LinkChanges.count, self.path
        descriptor = self.take()
        if not links.is_named(descriptor.fd, path):
            # Another open file of this path has put a copy in its place.
            descriptor = self.renew()
        if links.has_other_names(descriptor.fd):
            links.own_copy(descriptor.fd, path, keep, is_durable=self.IS_DURABLE)
            return self.renew()
        self._looked_at = changes
        return descriptor

    def fsync(self) -> None:
        descriptor = self.take()
        if FULL_SYNC is not None:
            fcntl.fcntl(descriptor.fd, FULL_SYNC)
        else:
            _sync(descriptor.fd)

    def size(self) -> int:
        descriptor = self.take()
        return os.fstat(descriptor.fd).st_size
