"""The page cache: which parts of a file are in memory, and which go to the device, by system calls that Python lacks.

Responsible for the calls, for which of them this kernel has, and for loading a part of a file. Not responsible for what
a read does if a part is not in memory (files.py), nor for when something is loaded or written back.

cachestat(2) counts the cached pages of a range in a microsecond (Linux 6.5 and later). It also counts pages that are
still being read. So a read that does not wait then tests the last byte. mincore(2) needs a map of the range, which is
then removed, and ten microseconds for a megabyte. If neither works, every range counts as resident: reads then wait, as
on any other system.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from _thread import get_ident
from collections.abc import Callable
from types import TracebackType

#: (descriptor, offset, length) -> True if all of it is in memory. Raises OSError where the kernel does not know.
IsResident = Callable[[int, int, int], bool]

# A flag of a read: return instead of waiting. 0 if the platform has no such flag.
NO_WAIT: int = getattr(os, "RWF_NOWAIT", 0) if hasattr(os, "preadv") else 0

_PAGE = mmap.PAGESIZE
# The number is the same on every architecture, as for all newer system calls.
_SYS_CACHESTAT = 451
_PROT_READ, _MAP_SHARED, _MAP_FAILED = 1, 1, ctypes.c_void_p(-1).value
_SYNC_FILE_RANGE_WRITE = 2
# The size of one copy where cold bytes have to be copied in order to be read.
_COPY_BYTES = 256 * 1024
_Pair, _Five = ctypes.c_uint64 * 2, ctypes.c_uint64 * 5


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
        libc.syncfs.argtypes = [ctypes.c_int]
    except (OSError, AttributeError):
        return None  # not Linux
    return libc


_LIBC = _libc()


def would_wait(fd: int, buffer: bytearray, offset: int) -> bool | None:
    """Return True if a read would wait for the device; None if this system cannot find that out."""
    try:
        os.preadv(fd, [buffer], offset, NO_WAIT)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def by_cachestat(fd: int, offset: int, length: int) -> bool:
    assert _LIBC is not None
    first = offset // _PAGE
    pages = -(-(offset + length) // _PAGE) - first
    found = _Five()
    if _LIBC.syscall(_SYS_CACHESTAT, fd, _Pair(first * _PAGE, pages * _PAGE), found, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return found[0] >= pages and not (NO_WAIT and would_wait(fd, bytearray(1), offset + length - 1))


def by_mincore(fd: int, offset: int, length: int) -> bool:
    assert _LIBC is not None
    start = offset // _PAGE * _PAGE
    length += offset - start
    pages = -(-length // _PAGE)
    present = ctypes.create_string_buffer(pages)
    address = _LIBC.mmap(None, length, _PROT_READ, _MAP_SHARED, fd, start)
    if address == _MAP_FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    try:
        if _LIBC.mincore(address, length, present):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    finally:
        _LIBC.munmap(address, length)
    # Only the lowest bit of each byte means something.
    return all(byte & 1 for byte in present.raw)


def _read_in(fd: int, offset: int, length: int) -> int:
    """Make the kernel read a range into the page cache, without a copy for this process. Return how many bytes
    exist."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return _read_in_vain(fd, offset, length)
    try:
        got = 0
        while got < length and (count := os.sendfile(sink, fd, offset + got, length - got)):
            got += count
        return got
    except OSError:
        # This system sends only to sockets, or the device failed, which the next read raises again.
        return _read_in_vain(fd, offset, length)
    finally:
        os.close(sink)


def _read_in_vain(fd: int, offset: int, length: int) -> int:
    got = 0
    while got < length and (count := len(os.pread(fd, min(_COPY_BYTES, length - got), offset + got))):
        got += count
    return got


def write_back(fd: int, offset: int, length: int) -> None:
    """Begin to write the dirty whole pages of a range to the device; waits only if the device's queue is full. Promises
    nothing: the next fsync raises an error of the device. Without such a call the kernel starts when it chooses."""
    end = (offset + length) // _PAGE * _PAGE
    if _LIBC is not None and end > offset:
        _LIBC.sync_file_range(fd, offset, end - offset, _SYNC_FILE_RANGE_WRITE)


def sync_file_system(fd: int) -> None:
    """Write everything that is dirty in the file system of an open file to its device, and wait. Raises OSError."""
    if _LIBC is None:
        # Not Linux: sync(2) begins to write every file system.
        os.sync()
    elif _LIBC.syncfs(fd):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def probes() -> list[IsResident]:
    """Return the probes of this system, the best first."""
    return [] if _LIBC is None else [by_cachestat, by_mincore]


class PageCache:
    """The page cache for the files of one disk, seen through the best probe that still works.

    Inside a `with` block reads of this thread must not wait. The block cannot be nested.
    """

    __slots__ = ("_probe", "_probes", "hurried")

    def __init__(self) -> None:
        self._probes = probes()
        self._probe: IsResident | None = self._probes.pop(0) if self._probes else None
        #: the thread whose reads must not wait for a device, 0 if there is none
        self.hurried = 0

    def __enter__(self) -> None:
        # One assignment only, because every fetch enters this block.
        self.hurried = get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hurried = 0

    def is_resident(self, fd: int, offset: int, length: int) -> bool:
        probe = self._probe
        if probe is None:
            return True
        try:
            return probe(fd, offset, length)
        except OSError:
            self._next_probe(probe)
            return self.is_resident(fd, offset, length)

    def _next_probe(self, wrong: IsResident) -> None:
        if self._probe is wrong:
            self._probe = self._probes.pop(0) if self._probes else None

    def load(self, fd: int, offset: int, length: int) -> None:
        """Load a range and wait for the device; call it on a thread."""
        if _read_in(fd, offset, length) < length:
            return
        probe = self._probe
        if probe is not None and not self.is_resident(fd, offset + length - 1, 1) and probe is self._probe:
            # The bytes were just read. A probe that does not find them never will: overlay file systems have pages of
            # their own.
            self._next_probe(probe)
