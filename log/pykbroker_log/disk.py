"""The one door to the disk: `Disk` and `File`, and the operating system's (memory_disk.py has the other).

Responsible for: every system call that log/ and raft storage make. Not responsible for: formats, names, what an error
means (callers turn `OSError` into `StorageError`).

Invariants:
* Nothing else in log/ or raft/ imports `os` or `mmap`, or calls `open` (tests/log/test_house.py).
* `pwritev` has written everything or raised; after an error any prefix of the data may be in the file.
* Nothing is mapped: touching a map behind a truncated end kills the process (SIGBUS), a map holds memory areas and, in
  Python, a descriptor. What a transport is to send without a copy is a `Region`, for sendfile(2).
* A descriptor is closed when nobody uses it any more, and how many are open is bounded.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
from _thread import get_ident
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, TypeAlias

from pykbroker_log import disk_sync
from pykbroker_log.page_cache import NO_WAIT, Probe, probes, write_back

# Of `OsDisk.list`, mypy would think.
Contexts: TypeAlias = list[disk_sync.Context]
Buffer: TypeAlias = bytes | bytearray | memoryview

# writev(2) takes at most IOV_MAX (1024 on Linux and macOS) buffers.
_MAX_BUFFERS = 1024
_MAX_OPEN_FILES = 16 * 1024
# Up to here a read that does not wait is tried at once; a larger one is asked about first, so that nothing is copied
# in vain.
_TRY_BYTES = 64 * 1024
# A thread reads what is cold in pieces of this size, into memory that it throws away.
_LOAD_BYTES = 256 * 1024
# Behind a piece of a region that had to be loaded; the next is found in memory, or on its way there.
_READ_AHEAD_BYTES = 8 * 1024 * 1024


class Loadable(Protocol):
    """A file, a region, or several things that a reader needs together."""

    def load(self, offset: int, length: int, /) -> None: ...


class ColdRead(Exception):
    """The bytes [offset, offset + length) of `source` are not in memory, and the reader is not to wait for the device:
    `source.load(offset, length)` on a thread, then read again."""

    def __init__(self, source: Loadable, offset: int, length: int) -> None:
        super().__init__(offset, length)
        self.source = source
        self.offset = offset
        self.length = length


class Region(Protocol):
    """A piece of a file that goes to a socket without passing through this process. It stays readable when the file is
    closed, renamed or unlinked; what is cut off the file comes back short."""

    def __len__(self) -> int: ...

    def is_resident(self, position: int, length: int) -> bool: ...

    def load(self, position: int, length: int) -> None: ...

    def send(self, socket: int, position: int, length: int) -> int: ...

    def pread(self, size: int, position: int) -> bytes: ...


class FileClosed(FileNotFoundError):
    """A call on a file that its owner has closed."""


class File(Protocol):
    def pread(self, size: int, offset: int) -> bytes: ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def size(self) -> int: ...

    def load(self, offset: int, length: int) -> None: ...

    def region(self, offset: int, length: int) -> Region | None: ...

    def write_back(self, offset: int, length: int) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def without_waiting(self) -> AbstractContextManager[None]: ...

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]: ...

    def scan(self, path: str) -> Sequence[tuple[str, int]]: ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock: ...

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, FileNotFoundError]:
        """Of many folders at once. Returns those that are not there."""
        ...

    def fsync_files(self, files: Sequence[File]) -> None:
        """Fsync files that this disk has opened, together where the system can; those that are closed are left out.
        Raises the OSError of one that failed, when all have ended."""
        ...

    def usage(self, path: str) -> tuple[int, int]: ...


# ------------------------------------------------------------------------------------------------------------ helpers


def parent_of(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head if head else (slash or ".")


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_new(disk: Disk, path: str, data: Buffer, *, sync: bool = True) -> None:
    """Write a whole file that nobody reads yet. The name is not durable before the caller's `fsync_dir`."""
    file = disk.open(path, create=True)
    try:
        if file.size():
            file.truncate(0)
        file.pwritev([data], 0)
        if sync:
            file.fsync()
    finally:
        file.close()


def write_atomic(disk: Disk, path: str, data: Buffer, *, suffix: str = ".tmp") -> None:
    """Replace `path`: after a crash at any point a reader sees the old contents or the new, never a mixture."""
    temporary = path + suffix
    write_new(disk, temporary, data)
    disk.rename(temporary, path)
    disk.fsync_dir(parent_of(path))


def sync_path(disk: Disk, path: str) -> None:
    """Fsync a file that nobody holds open."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        # Deleted since; the fsync of the folder covers that.
        return
    try:
        file.fsync()
    finally:
        file.close()


def remove_tree(disk: Disk, path: str) -> None:
    for name in disk.list(path):
        child = f"{path}/{name}"
        if disk.is_dir(child):
            remove_tree(disk, child)
        else:
            disk.unlink(child)
    disk.remove_dir(path)


# ----------------------------------------------------------------------------------------------------------------- OS

#: Whether regions can be sent here.
SENDS_FILES = hasattr(os, "sendfile")
_CAN_READ_AHEAD = hasattr(os, "posix_fadvise")
_HAS_PWRITEV = hasattr(os, "pwritev")
# fdatasync also writes the size, which is all that a reader after a crash needs; fsync would add the time stamps.
# macOS has neither in the sense that matters: only F_FULLFSYNC empties the drive's cache.
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def zeros(size: int) -> memoryview:
    """So many zeros, which are no memory until something else is written there; a bytearray's all are."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE))


class _Descriptor:
    """Closed when the last reference goes: who uses the number holds the object, so a descriptor is never closed, let
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
            pass  # the device failed; who wrote has been told by fsync


class OsRegion:
    __slots__ = ("_descriptor", "_disk", "_length", "_offset")

    def __init__(self, disk: OsDisk, descriptor: _Descriptor, offset: int, length: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._offset = offset
        self._length = length
        if not descriptor.regions:
            disk.lent += 1
        descriptor.regions += 1

    def __del__(self) -> None:
        self._descriptor.regions -= 1
        if not self._descriptor.regions:
            self._disk.lent -= 1

    def __len__(self) -> int:
        return self._length

    def is_resident(self, position: int, length: int) -> bool:
        """Whether `send` of these bytes waits for no device."""
        return self._disk._is_resident(self._descriptor.fd, self._offset + position, length)

    def load(self, position: int, length: int) -> None:
        """Wait for the device: for a thread. What follows in the file is begun to be read: who reads one piece of a
        log goes on to the next."""
        fd, offset = self._descriptor.fd, self._offset + position
        if _CAN_READ_AHEAD:
            os.posix_fadvise(fd, offset, length + _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        self._disk._load(fd, offset, length)

    def send(self, socket: int, position: int, length: int) -> int:
        """sendfile(2): how many bytes the socket took. Raises BlockingIOError when it takes none, OSError; what is no
        longer in the file is EIO."""
        count = os.sendfile(socket, self._descriptor.fd, self._offset + position, length)
        if not count:
            raise OSError(errno.EIO, "the file is shorter than it was")
        return count

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._descriptor.fd, min(size, self._length - position), self._offset + position)


class OsFile:
    """A file whose descriptor comes and goes: the disk gives up the ones that were not used for longest.

    Calls may come from several threads. The path is needed again, so a file is closed by its owner before its name
    changes.
    """

    __slots__ = ("_descriptor", "_disk", "_path", "recent")

    def __init__(self, disk: OsDisk, path: str, descriptor: _Descriptor) -> None:
        self._disk = disk
        self._path = path
        self._descriptor: _Descriptor | None = descriptor
        #: used since the disk last looked for something to close
        self.recent = True

    def _take(self) -> _Descriptor:
        """The caller keeps it for as long as it uses the number."""
        self.recent = True
        return self._descriptor or self._disk._reopen(self)

    def pread(self, size: int, offset: int) -> bytes:
        """Short only at the end of the file. Raises ColdRead within `without_waiting`."""
        descriptor = self._take()
        fd = descriptor.fd
        hurried = self._disk._hurried
        if hurried and hurried == get_ident():
            if size <= _TRY_BYTES and NO_WAIT:
                return self._pread_at_once(fd, size, offset)
            if not self._disk._is_resident(fd, offset, size):
                # What is behind the end of the file is never in memory.
                held = min(size, os.fstat(fd).st_size - offset)
                if held > 0 and (held == size or not self._disk._is_resident(fd, offset, held)):
                    raise ColdRead(self, offset, held)
        data = os.pread(fd, size, offset)
        if len(data) == size or not data:
            return data
        # Short: the end of the file, or a signal in the middle of a large read.
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

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
                # A file system that cannot say.
                count = os.preadv(fd, [view[got:]], offset + got)
            if not count:
                break
            got += count
        return bytes(view[:got])

    def load(self, offset: int, length: int) -> None:
        """Wait for the device: for a thread."""
        self._disk._load(self._take().fd, offset, length)

    def region(self, offset: int, length: int) -> OsRegion | None:
        """None where regions keep so many descriptors open already that no other may be kept: slow connections hold
        on to theirs for as long as they like. On one thread."""
        descriptor = self._take()
        disk = self._disk
        if not descriptor.regions and disk.lent >= disk.max_open_files // 2:
            return None
        return OsRegion(disk, descriptor, offset, length)

    def write_back(self, offset: int, length: int) -> None:
        """Begin to write what is dirty to the device, without a promise: for a thread."""
        write_back(self._take().fd, offset, length)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        descriptor = self._take()
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
        descriptor = self._take()
        os.ftruncate(descriptor.fd, size)

    def fsync(self) -> None:
        descriptor = self._take()
        if _FULL_SYNC is not None:
            fcntl.fcntl(descriptor.fd, _FULL_SYNC)
        else:
            _sync(descriptor.fd)

    def size(self) -> int:
        descriptor = self._take()
        return os.fstat(descriptor.fd).st_size

    def close(self) -> None:
        self._path = ""  # a call after this one finds no file
        self._disk._forget(self)


class _Hurry:
    """A context manager in two assignments: it is entered for every fetch."""

    __slots__ = ("_disk",)

    def __init__(self, disk: OsDisk) -> None:
        self._disk = disk

    def __enter__(self) -> None:
        self._disk._hurried = get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk._hurried = 0


class OsLock:
    # POSIX locks (the kind that Java's FileChannel takes, so that we and Apache Kafka exclude each other) belong
    # to the process and vanish when *any* descriptor of the file closes; two brokers in one process need this set
    # as well.
    _held: set[str] = set()

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._fd = -1
        if self._path in OsLock._held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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


def _take_context(contexts: Contexts) -> disk_sync.Context:
    try:
        return contexts.pop()
    except IndexError:
        return disk_sync.Context()


def _fsync_unless_closed(file: File) -> None:
    try:
        file.fsync()
    except FileClosed:
        pass


class OsDisk:
    """`max_open_files`: descriptors of files and of regions, by default half of what the process may open; half of
    these for regions at most."""

    def __init__(self, *, max_open_files: int | None = None) -> None:
        if max_open_files is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            max_open_files = _MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, soft // 2)
        self.max_open_files = max(8, max_open_files)
        # In the order of opening; a file that was used since the last look goes to the end instead of being closed.
        self._open: dict[OsFile, None] = {}
        # All that are open, those that only a call or a region still holds too.
        self._descriptors: dict[int, None] = {}
        #: how many of them regions hold
        self.lent = 0
        # The thread that is not to wait; 0: none.
        self._hurried = 0
        self._patience = _Hurry(self)
        # For fsyncs of many files, those that no thread uses just now; None where there is no such thing.
        self._aio: Contexts | None = [] if _FULL_SYNC is None else None
        self._probes = probes()
        self._probe: Probe | None = self._probes.pop(0) if self._probes else None

    # -- what is in memory

    def without_waiting(self) -> AbstractContextManager[None]:
        """Within it this thread's reads raise `ColdRead` instead of waiting for a device. Not to be nested."""
        return self._patience

    def _is_resident(self, fd: int, offset: int, length: int) -> bool:
        probe = self._probe
        if probe is None:
            return True
        try:
            return probe(fd, offset, length)
        except OSError:
            self._next_probe(probe)
            return self._is_resident(fd, offset, length)

    def _next_probe(self, wrong: Probe) -> None:
        if self._probe is wrong:
            self._probe = self._probes.pop(0) if self._probes else None

    def _load(self, fd: int, offset: int, length: int) -> None:
        position, end = offset, offset + length
        while position < end:
            count = len(os.pread(fd, min(_LOAD_BYTES, end - position), position))
            if not count:
                return
            position += count
        probe = self._probe
        if probe is not None and not self._is_resident(fd, end - 1, 1) and probe is self._probe:
            # It was read this moment: a probe that does not see it (overlay file systems have pages of their own)
            # never will.
            self._next_probe(probe)

    # -- descriptors

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = OsFile(self, path, self._descriptor(path, create))
        self._open[file] = None
        self._close_some()
        return file

    def _descriptor(self, path: str, create: bool) -> _Descriptor:
        return _Descriptor(self._open_path(path, create), self._descriptors)

    @staticmethod
    def _open_path(path: str, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            return os.open(path, flags | os.O_CREAT, 0o644)
        try:
            return os.open(path, flags)
        except OSError as error:
            # A file that may only be read: Kafka's metadata snapshots are mode 0400, a damaged disk is remounted so.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _reopen(self, file: OsFile) -> _Descriptor:
        if not file._path:
            raise FileClosed(errno.ENOENT, "the file is closed")
        descriptor = self._descriptor(file._path, False)
        if file._descriptor is None:
            file._descriptor = descriptor
            self._open[file] = None
            self._close_some()
        # Else two threads at once: theirs stays, this one is for this call.
        return descriptor

    def _close_some(self) -> None:
        looks = 2 * len(self._open)
        while len(self._descriptors) > self.max_open_files and looks > 0:
            looks -= 1
            try:
                file = next(iter(self._open))
            except (StopIteration, RuntimeError):
                return  # another thread is at it
            self._open.pop(file, None)
            descriptor = file._descriptor
            if file.recent or (descriptor is not None and descriptor.regions):
                file.recent = False
                self._open[file] = None
            else:
                file._descriptor = None

    def _forget(self, file: OsFile) -> None:
        self._open.pop(file, None)
        file._descriptor = None

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        """When the file was last written to, wall-clock milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def scan(self, path: str) -> Sequence[tuple[str, int]]:
        """(name, size in bytes) of everything in a folder, in order."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.stat().st_size))
                except FileNotFoundError:
                    continue  # deleted meanwhile, or a link to nothing
        found.sort()
        return found

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        return OsLock(path)

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, FileNotFoundError]:
        missing: dict[str, FileNotFoundError] = {}
        for first in range(0, len(paths), disk_sync.MAX_FILES):
            opened: dict[int, str] = {}
            try:
                for path in paths[first : first + disk_sync.MAX_FILES]:
                    try:
                        opened[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = path
                    except FileNotFoundError as error:
                        missing[path] = error
                for fd, code in zip(opened, self._fsync_at_once(list(opened), folders=True), strict=True):
                    if code > 0:
                        raise OSError(code, os.strerror(code), opened[fd])
                    if code < 0:
                        os.fsync(fd)
            finally:
                for fd in opened:
                    os.close(fd)
        return missing

    def fsync_files(self, files: Sequence[File]) -> None:
        for first in range(0, len(files), disk_sync.MAX_FILES):
            self._fsync_some(files[first : first + disk_sync.MAX_FILES])

    def _fsync_some(self, files: Sequence[File]) -> None:
        taken: list[tuple[OsFile, _Descriptor]] = []
        for file in files:
            assert isinstance(file, OsFile)
            try:
                taken.append((file, file._take()))
            except FileClosed:
                continue
        results = self._fsync_at_once([descriptor.fd for _, descriptor in taken])
        for (file, _), code in zip(taken, results, strict=True):
            if code > 0:
                raise OSError(code, os.strerror(code), file._path)
        for (file, _), code in zip(taken, results, strict=True):
            if code < 0:
                # No fsync was tried.
                _fsync_unless_closed(file)

    def _fsync_at_once(self, descriptors: Sequence[int], *, folders: bool = False) -> Sequence[int]:
        """As Context.fsync; where there is no such thing the kernel takes none of them."""
        contexts = self._aio
        if len(descriptors) > 1 and contexts is not None:
            try:
                # Each thread has one for itself meanwhile.
                context = _take_context(contexts)
                results = context.fsync(descriptors, folders=folders)
                contexts.append(context)
                return results
            except disk_sync.Unavailable:
                self._aio = None
        return [-1] * len(descriptors)

    def usage(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
