"""The disk interface that log/ and raft storage need: `Disk`, `File`, `Region`, and functions for whole files.

Responsible for the contract that os_disk/ and memory_disk.py keep, and for functions that need only the contract. Not
responsible for formats, for names, nor for what an error means (callers turn `OSError` into `StorageError`).

Invariants:
* `pwritev` returns after it has written everything, or raises; after an error any prefix of the data may be in the
  file.
* A file is closed by its owner before its name changes.
* A file that has several names (`Disk.link`) never changes. A `pwritev` or `truncate` under one of its names first puts
  a durable copy in the place of that name, and the others keep their bytes. After a crash the name stands for the old
  file or for the copy; a file whose name ends in `.tmp` may be left beside it.
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
    """The bytes [offset, offset + length) of `source` are not in memory, and the reader must not wait for the device.
    Call `source.load(offset, length)` on a thread, and then read again."""

    def __init__(self, source: Loadable, offset: int, length: int) -> None:
        super().__init__(offset, length)
        self.source = source
        self.offset = offset
        self.length = length


class Region(Protocol):
    """A piece of a file that is sent to a socket without passing through this process (`send`), or read when the socket
    has room (`pread`). It stays readable when the file is closed, renamed or unlinked. If the file was truncated, reads
    return fewer bytes."""

    def __len__(self) -> int: ...

    def is_resident(self, position: int, length: int) -> bool: ...

    def load(self, position: int, length: int) -> None: ...

    def send(self, socket: int, position: int, length: int) -> int: ...

    def pread(self, size: int, position: int) -> bytes: ...

    def part(self, position: int, length: int) -> Region:
        """Return a region of these bytes, which lie within this region."""
        ...


class FileClosed(FileNotFoundError):
    """A call on a file that its owner has closed."""


class FileReader(Protocol):
    """A file for a scan. `pread` may return a view of a memory map. Touching it can kill the process
    (os_disk/mapped.py)."""

    def pread(self, size: int, offset: int) -> Buffer: ...

    def size(self) -> int: ...


class File(Protocol):
    def pread(self, size: int, offset: int) -> bytes: ...

    def reader(self) -> FileReader:
        """Return a reader through a map if the disk maps files, else this file itself."""
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
    """Fsyncs batches of files, one batch at a time, without a thread that waits for them. All calls come from one
    thread."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when an fsync has ended."""
        ...

    def begin(self, files: Sequence[File]) -> bool:
        """Start the next batch. Return False if nothing was started; then `Disk.fsync_files` must fsync these files."""
        ...

    def ended(self) -> Sequence[File] | None:
        """Collect results; call it when `fileno()` is readable. Return None while the batch goes on. When it is over,
        return the files that were not tried; all others are durable or were closed. Raises the OSError of an fsync that
        failed, when all have ended."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    @property
    def fsync_waits(self) -> bool:
        """False if no fsync of this disk waits for a device, so that it needs no thread."""
        ...

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

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which must be free. Raises OSError if the file system cannot do that."""
        ...

    def copy(self, source: str, target: str, *, keeps_time: bool = False) -> int:
        """Copy a file to a name that must be free, with its time of change if that is wanted. Return the number of
        bytes that were written: 0 if the file system shares them (a clone). Raises OSError; then the name is free."""
        ...

    def sync_all(self, path: str) -> None:
        """Make everything below a folder durable, its own name excepted; other files may become durable too."""
        ...

    def remove_dir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock: ...

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, FileNotFoundError]:
        """Fsync many folders at once. Return those that do not exist."""
        ...

    def fsync_files(self, files: Sequence[File]) -> None:
        """Fsync open files of this disk, together where the system can. Closed files are left out. If an fsync fails,
        raises its OSError when all have ended."""
        ...

    def fsyncs(self) -> Fsyncs | None:
        """Return an object that fsyncs files without a waiting thread, or None if the system does not support that."""
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
    """Write a whole file that has no readers yet. The name becomes durable by the caller's `fsync_dir`."""
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
    """Replace the file `path`. After a crash at any point a reader finds the old contents or the new, never a
    mixture."""
    temporary = path + suffix
    write_new(disk, temporary, data)
    disk.rename(temporary, path)
    disk.fsync_dir(parent_of(path))


def sync_path(disk: Disk, path: str) -> None:
    """Fsync a file that is not open."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        # The file was deleted in the meantime; the fsync of the folder makes that durable.
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
