"""What log/ and raft storage ask of a disk: `Disk`, `File`, `Region`, and the calls on files as a whole.

Responsible for the contract that os_disk/ and memory_disk.py keep, and for what needs no more than the contract. Not
responsible for formats, names, what an error means (callers turn `OSError` into `StorageError`).

Invariants:
* `pwritev` has written everything or raised; after an error any prefix of the data may be in the file.
* A file is closed by its owner before its name changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


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
    """A piece of a file that goes to a socket without passing through this process (`send`), or that is read when the
    socket has room (`pread`). It stays readable when the file is closed, renamed or unlinked; what is cut off the file
    comes back short."""

    def __len__(self) -> int: ...

    def is_resident(self, position: int, length: int) -> bool: ...

    def load(self, position: int, length: int) -> None: ...

    def send(self, socket: int, position: int, length: int) -> int: ...

    def pread(self, size: int, position: int) -> bytes: ...


class FileClosed(FileNotFoundError):
    """A call on a file that its owner has closed."""


class FileReader(Protocol):
    """A file for a scan. What `pread` returns may be a view of a map: a worker process may die of touching it."""

    def pread(self, size: int, offset: int) -> Buffer: ...

    def size(self) -> int: ...


class File(Protocol):
    def pread(self, size: int, offset: int) -> bytes: ...

    def reader(self) -> FileReader:
        """Through a map where the disk maps files, else this file itself."""
        ...

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


class Fsyncs(Protocol):
    """Fsyncs of files that no thread waits for, a batch at a time. On one thread."""

    def fileno(self) -> int:
        """Becomes readable when one of them has ended."""
        ...

    def begin(self, files: Sequence[File]) -> bool:
        """The next batch. False: nothing was begun, and `Disk.fsync_files` has to do it."""
        ...

    def ended(self) -> Sequence[File] | None:
        """Called once `fileno()` is readable. None: the batch goes on. Otherwise it is over, and all but these files
        are durable or were closed; these were not tried. Raises the OSError of one that failed, when all have ended."""
        ...

    def close(self) -> None: ...


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

    def fsyncs(self) -> Fsyncs | None:
        """None where the system has no such thing."""
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
    """Write a whole file that has no readers yet. The name is not durable before the caller's `fsync_dir`."""
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
    """Fsync a file that is not open."""
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
