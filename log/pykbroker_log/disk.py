"""The one door to the disk: `Disk` and `File`, and the operating system's (memory_disk.py has the other).

Responsible for: every system call that log/ and raft storage make. Not responsible for: formats, names, what an error
means (callers turn `OSError` into `StorageError`).

Invariants:
* Nothing else in log/ or raft/ imports `os` or `mmap`, or calls `open` (tests/log/test_house.py).
* `pwritev` has written everything or raised; after an error any prefix of the data may be in the file.
* A map is read-only, is never stored to, and is only handed out as a memoryview for a transport: Python code reads
  with `pread`, because touching a map behind a truncated end kills the process (SIGBUS) where `pread` comes back
  short.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

# writev(2) takes at most IOV_MAX (1024 on Linux and macOS) buffers.
_MAX_BUFFERS = 1024
_MAX_OPEN_FILES = 16 * 1024


class File(Protocol):
    def pread(self, size: int, offset: int) -> bytes: ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def size(self) -> int: ...

    def map(self, length: int) -> memoryview | None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
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


def remove_tree(disk: Disk, path: str) -> None:
    for name in disk.list(path):
        child = f"{path}/{name}"
        if disk.is_dir(child):
            remove_tree(disk, child)
        else:
            disk.unlink(child)
    disk.remove_dir(path)


# ----------------------------------------------------------------------------------------------------------------- OS

_HAS_PWRITEV = hasattr(os, "pwritev")
# fdatasync also writes the size, which is all that a reader after a crash needs; fsync would add the time stamps.
# macOS has neither in the sense that matters: only F_FULLFSYNC empties the drive's cache.
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class OsFile:
    """A file whose descriptor comes and goes: the disk closes the ones that were not used for longest.

    Calls may come from several threads. None of them can be handed a descriptor that is closed meanwhile, let
    alone one that has become another file: a call first pins the file, then takes the descriptor; who closes first
    takes the descriptor away, then looks for pins, and leaves a pinned one to be closed later. (Each step is one
    bytecode under the GIL.)

    The path is needed again, so a file is closed by its owner before its name changes.
    """

    __slots__ = ("_disk", "_fd", "_path", "_pins", "_view", "recent")

    def __init__(self, disk: OsDisk, path: str, fd: int) -> None:
        self._disk = disk
        self._path = path
        self._fd = fd
        self._pins: list[None] = []
        self._view: memoryview | None = None
        #: used since the disk last looked for something to close
        self.recent = True

    def _take(self) -> int:
        """The descriptor; the caller has pinned the file."""
        self.recent = True
        fd = self._fd
        return fd if fd >= 0 else self._disk._reopen(self)

    def pread(self, size: int, offset: int) -> bytes:
        self._pins.append(None)
        try:
            fd = self._take()
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
        finally:
            self._pins.pop()

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        self._pins.append(None)
        try:
            fd = self._take()
            if _HAS_PWRITEV and len(buffers) <= _MAX_BUFFERS:
                written = os.pwritev(fd, buffers, offset)
                if written == total:
                    return total
            else:
                written = 0
            self._write_rest(fd, buffers, offset, written)
            return total
        finally:
            self._pins.pop()

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
        self._view = None
        self._pins.append(None)
        try:
            os.ftruncate(self._take(), size)
        finally:
            self._pins.pop()

    def fsync(self) -> None:
        self._pins.append(None)
        try:
            fd = self._take()
            if _FULL_SYNC is not None:
                fcntl.fcntl(fd, _FULL_SYNC)
            else:
                _sync(fd)
        finally:
            self._pins.pop()

    def size(self) -> int:
        self._pins.append(None)
        try:
            return os.fstat(self._take()).st_size
        finally:
            self._pins.pop()

    def map(self, length: int) -> memoryview | None:
        # The memoryview keeps the map alive, and the map keeps a descriptor of its own: the file may be closed,
        # renamed or unlinked under it, and the disk may forget the map while a reader still has a slice of it.
        view = self._view
        if view is not None and len(view) >= length:
            self.recent = True
            return view
        if length <= 0:
            return None
        self._pins.append(None)
        try:
            view = memoryview(mmap.mmap(self._take(), length, access=mmap.ACCESS_READ))
        finally:
            self._pins.pop()
        self._view = view
        self._disk._remember_map(self)
        return view

    def close(self) -> None:
        self._view = None
        self._path = ""  # a call after this one finds no file
        self._disk._forget(self)


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


class OsDisk:
    """`max_open_files`: descriptors kept by files, by default half of what the process may open; a quarter of that
    many maps (each holds a descriptor too)."""

    def __init__(self, *, max_open_files: int | None = None) -> None:
        if max_open_files is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            max_open_files = _MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, soft // 2)
        self.max_open_files = max(8, max_open_files)
        # In the order of opening; a file that was used since the last look goes to the end instead of being closed.
        self._open: dict[OsFile, None] = {}
        self._mapped: dict[OsFile, None] = {}
        # Taken away from a file while a call was using it.
        self._lingering: list[tuple[OsFile, int]] = []

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = OsFile(self, path, self._descriptor(path, create))
        self._open[file] = None
        self._close_some()
        return file

    @staticmethod
    def _descriptor(path: str, create: bool) -> int:
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

    def _reopen(self, file: OsFile) -> int:
        fd = self._descriptor(file._path, False)
        if file._fd >= 0:
            # Two threads at once: theirs stays, this one is for this call and goes when the file is free.
            self._lingering.append((file, fd))
            return fd
        file._fd = fd
        self._open[file] = None
        self._close_some()
        return fd

    def _close_some(self) -> None:
        looks = 2 * len(self._open)
        while len(self._open) > self.max_open_files and looks > 0:
            looks -= 1
            try:
                file = next(iter(self._open))
            except (StopIteration, RuntimeError):
                return  # another thread is at it
            self._open.pop(file, None)
            if file.recent or file._pins:
                file.recent = False
                self._open[file] = None
            else:
                self._release(file)

    def _release(self, file: OsFile) -> None:
        fd, file._fd = file._fd, -1
        if fd >= 0:
            self._lingering.append((file, fd))
        for _ in range(len(self._lingering)):
            try:
                owner, fd = self._lingering.pop(0)
            except IndexError:
                return
            if owner._pins:
                self._lingering.append((owner, fd))
            else:
                os.close(fd)

    def _forget(self, file: OsFile) -> None:
        self._open.pop(file, None)
        self._mapped.pop(file, None)
        self._release(file)

    def _remember_map(self, file: OsFile) -> None:
        self._mapped.pop(file, None)
        self._mapped[file] = None
        while len(self._mapped) > max(1, self.max_open_files // 4):
            oldest = next(iter(self._mapped))
            del self._mapped[oldest]
            oldest._view = None

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

    def usage(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
