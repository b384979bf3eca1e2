"""The one door to the disk: `Disk` and `File`, and their two implementations.

Responsible for: every system call that log/ and raft storage make. Not responsible for: formats, names, what an error
means (callers turn `OSError` into `StorageError`).

Invariants:
* Nothing else in log/ or raft/ imports `os` or `mmap`, or calls `open` (tests/log/test_house.py).
* `pwritev` has written everything or raised; after an error any prefix of the data may be in the file.
* A map is read-only, is never stored to, and is only handed out as a memoryview for a transport: Python code reads
  with `pread`, because touching a map behind a truncated end kills the process (SIGBUS) where `pread` comes back
  short.
* `MemoryDisk` keeps what was synced apart from what was only written, so that power can fail between any two calls.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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

    def list(self, path: str) -> list[str]: ...

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

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

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


# ------------------------------------------------------------------------------------------------------------- memory


class Survive(enum.Enum):
    """What of the unsynced survives a power loss."""

    NOTHING = "nothing"  # each file and folder is as at its last fsync
    EVERYTHING = "everything"  # as if only the process had been killed
    CHOSEN = "chosen"  # per file a prefix of its writes, per folder any subset of its changes


@dataclass(slots=True, frozen=True)
class Call:
    """One recorded call that changed something or made something durable."""

    operation: str  # create make_dir pwritev truncate fsync rename unlink remove_dir fsync_dir
    path: str
    file_id: int = -1
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass(slots=True)
class _FileNode:
    file_id: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    # Since the last fsync, in order: (offset, data), or (size, None) for a truncation.
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)


@dataclass(slots=True)
class _DirNode:
    entries: dict[str, _FileNode | _DirNode] = field(default_factory=dict)
    synced: dict[str, _FileNode | _DirNode] = field(default_factory=dict)
    # Since the last fsync_dir, in order: names that appear, and names that go away, as one atomic change each.
    unsynced: list[tuple[dict[str, _FileNode | _DirNode], tuple[str, ...]]] = field(default_factory=list)

    def change(self, added: dict[str, _FileNode | _DirNode], removed: tuple[str, ...] = ()) -> None:
        self.unsynced.append((added, removed))
        for name in removed:
            self.entries.pop(name, None)
        self.entries.update(added)


@dataclass(slots=True)
class _Failure:
    operation: str
    error: int
    path_contains: str
    skip: int
    count: int | None


def _apply(data: bytearray, offset: int, change: bytes | None) -> None:
    if change is None:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(change)] = change


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


class MemoryDisk:
    """A disk in memory that records its calls, loses power on demand and fails when told to.

    `calls` is the record; `replay(calls[:n])` is the disk after the first n of them, and `power_loss(...)` gives the
    disk that the next start would find. Both return new disks; the old one stays as it was.
    """

    def __init__(self, *, record: bool = True, capacity_bytes: int = 1 << 40) -> None:
        self.calls: list[Call] = []
        self.capacity_bytes = capacity_bytes
        self._record = record
        self._root = _DirNode()
        self._files = 0
        self._by_id: dict[int, _FileNode] = {}
        self._used = 0
        self._locks: set[str] = set()
        self._failures: list[_Failure] = []

    # -- faults

    def fail_next(
        self, operation: str, error: int = errno.EIO, *, path_contains: str = "", skip: int = 0, count: int | None = 1
    ) -> None:
        """Let `operation` raise: after `skip` calls, `count` times (None: for ever).

        `operation` is one of `Call.operation`, or "open", "pread", "list".
        """
        self._failures.append(_Failure(operation, error, path_contains, skip, count))

    def heal(self) -> None:
        self._failures.clear()

    def _check(self, operation: str, path: str) -> None:
        for failure in self._failures:
            if failure.operation != operation or failure.path_contains not in path:
                continue
            if failure.skip > 0:
                failure.skip -= 1
                continue
            if failure.count is not None:
                failure.count -= 1
                if failure.count <= 0:
                    self._failures.remove(failure)
            raise OSError(failure.error, f"{operation} told to fail", path)

    def power_loss(
        self, survive: Survive = Survive.NOTHING, *, torn: bool = False, choose: Callable[[int], int] | None = None
    ) -> MemoryDisk:
        """The disk after the power came back. `torn`: of the last write, if it was not synced, the first half is
        there.

        `choose(n)` draws from [0, n) and is needed for `CHOSEN`.
        """
        torn_id = self.calls[-1].file_id if torn and self.calls and self.calls[-1].operation == "pwritev" else -1
        after = MemoryDisk(record=self._record, capacity_bytes=self.capacity_bytes)
        copies: dict[int, _FileNode] = {}

        def pick(bound: int) -> int:
            assert choose is not None, "CHOSEN needs choose"
            return choose(bound)

        def file(node: _FileNode) -> _FileNode:
            if node.file_id in copies:
                return copies[node.file_id]
            data = bytearray(node.synced)
            changes = node.unsynced
            last_torn = bool(changes) and changes[-1][1] is not None and node.file_id == torn_id
            match survive:
                case Survive.NOTHING:
                    kept = changes[-1:] if last_torn else []
                case Survive.EVERYTHING:
                    kept = changes
                case Survive.CHOSEN:
                    kept = changes[: pick(len(changes) + 1)]
                    last_torn = bool(kept) and kept[-1][1] is not None and pick(2) == 1
            for index, (offset, change) in enumerate(kept):
                if change is not None and last_torn and index == len(kept) - 1:
                    cut = pick(len(change) + 1) if survive is Survive.CHOSEN else len(change) // 2
                    # A file system may have written the new size before the data: then the rest is zeros.
                    zeros = bytes(len(change) - cut) if survive is Survive.CHOSEN and pick(4) == 0 else b""
                    change = change[:cut] + zeros
                _apply(data, offset, change)
            copy = _FileNode(after._next_id(), data, bytearray(data))
            after._by_id[copy.file_id] = copy
            after._used += len(data)
            copies[node.file_id] = copy
            return copy

        def folder(node: _DirNode) -> _DirNode:
            entries = dict(node.synced)
            for added, removed in node.unsynced:
                if survive is Survive.EVERYTHING or (survive is Survive.CHOSEN and pick(2)):
                    for name in removed:
                        entries.pop(name, None)
                    entries.update(added)
            copied: dict[str, _FileNode | _DirNode] = {}
            for name, child in sorted(entries.items()):
                copied[name] = folder(child) if isinstance(child, _DirNode) else file(child)
            return _DirNode(copied, dict(copied))

        after._root = folder(self._root)
        return after

    @classmethod
    def replay(cls, calls: Iterable[Call]) -> MemoryDisk:
        disk = cls()
        for call in calls:
            disk.repeat(call)
        return disk

    def repeat(self, call: Call) -> None:
        """Do one recorded call again; the calls before it must have been repeated already."""
        match call.operation:
            case "create":
                assert self._create(call.path).file_id == call.file_id
            case "make_dir":
                self._make_dir(call.path)
            case "pwritev":
                self._write(self._by_id[call.file_id], call.path, call.data, call.offset)
            case "truncate":
                self._truncate(self._by_id[call.file_id], call.path, call.offset)
            case "fsync":
                self._fsync(self._by_id[call.file_id], call.path)
            case "rename":
                self.rename(call.path, call.target)
            case "unlink":
                self.unlink(call.path)
            case "remove_dir":
                self.remove_dir(call.path)
            case "fsync_dir":
                self.fsync_dir(call.path)
            case _:
                raise ValueError(call.operation)

    # -- Disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._check("open", path)
        node = self._find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check("create", path)
            node = self._create(path)
        if isinstance(node, _DirNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(self, node, path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _DirNode)

    def list(self, path: str) -> list[str]:
        self._check("list", path)
        return sorted(self._dir(path).entries)

    def make_dirs(self, path: str) -> None:
        so_far = ""
        for part in _parts(path):
            so_far = f"{so_far}/{part}" if so_far or path.startswith("/") else part
            if not self.exists(so_far):
                self._check("make_dir", so_far)
                self._make_dir(so_far)

    def rename(self, source: str, target: str) -> None:
        self._check("rename", source)
        node = self._find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        source_dir, target_dir = self._dir(parent_of(source)), self._dir(parent_of(target))
        source_name, target_name = _parts(source)[-1], _parts(target)[-1]
        if isinstance(target_dir.entries.get(target_name), _DirNode):
            raise OSError(errno.ENOTEMPTY, "directory exists", target)
        if source_dir is target_dir:
            source_dir.change({target_name: node}, (source_name,))
        else:
            target_dir.change({target_name: node})
            source_dir.change({}, (source_name,))
        self._note(Call("rename", source, target=target))

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _DirNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._dir(parent_of(path)).change({}, (_parts(path)[-1],))
        self._used -= len(node.data)
        self._note(Call("unlink", path))

    def remove_dir(self, path: str) -> None:
        self._check("remove_dir", path)
        if self._dir(path).entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self._dir(parent_of(path)).change({}, (_parts(path)[-1],))
        self._note(Call("remove_dir", path))

    def fsync_dir(self, path: str) -> None:
        self._check("fsync_dir", path)
        node = self._dir(path)
        node.synced = dict(node.entries)
        node.unsynced.clear()
        self._note(Call("fsync_dir", path))

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return MemoryLock(self, path)

    def usage(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self._used)

    # -- the parts

    def _note(self, call: Call) -> None:
        if self._record:
            self.calls.append(call)

    def _next_id(self) -> int:
        self._files += 1
        return self._files

    def _find(self, path: str) -> _FileNode | _DirNode | None:
        node: _FileNode | _DirNode = self._root
        for part in _parts(path):
            if not isinstance(node, _DirNode):
                return None
            child = node.entries.get(part)
            if child is None:
                return None
            node = child
        return node

    def _dir(self, path: str) -> _DirNode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, _DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _create(self, path: str) -> _FileNode:
        node = _FileNode(self._next_id())
        self._dir(parent_of(path)).change({_parts(path)[-1]: node})
        self._by_id[node.file_id] = node
        self._note(Call("create", path, node.file_id))
        return node

    def _make_dir(self, path: str) -> None:
        self._dir(parent_of(path)).change({_parts(path)[-1]: _DirNode()})
        self._note(Call("make_dir", path))

    def _write(self, node: _FileNode, path: str, data: bytes, offset: int) -> None:
        growth = max(0, offset + len(data) - len(node.data))
        room = self.capacity_bytes - self._used
        if growth > room:
            # As the real thing: what still fits is written, then comes the error.
            fits = max(0, len(data) - (growth - room))
            if fits:
                self._store(node, path, data[:fits], offset)
            raise OSError(errno.ENOSPC, "no space left", path)
        self._store(node, path, data, offset)

    def _store(self, node: _FileNode, path: str, data: bytes, offset: int) -> None:
        before = len(node.data)
        _apply(node.data, offset, data)
        self._used += len(node.data) - before
        node.unsynced.append((offset, data))
        self._note(Call("pwritev", path, node.file_id, offset, data))

    def _truncate(self, node: _FileNode, path: str, size: int) -> None:
        before = len(node.data)
        _apply(node.data, size, None)
        self._used += len(node.data) - before
        node.unsynced.append((size, None))
        self._note(Call("truncate", path, node.file_id, size))

    def _fsync(self, node: _FileNode, path: str) -> None:
        for offset, change in node.unsynced:
            _apply(node.synced, offset, change)
        node.unsynced.clear()
        self._note(Call("fsync", path, node.file_id))


class MemoryFile:
    __slots__ = ("_disk", "_node", "_path")

    def __init__(self, disk: MemoryDisk, node: _FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._path = path

    def pread(self, size: int, offset: int) -> bytes:
        self._disk._check("pread", self._path)
        return bytes(self._node.data[offset : offset + size])

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        try:
            self._disk._check("pwritev", self._path)
        except OSError:
            # Half of it reaches the file, so that nobody comes to rely on a failed write having done nothing.
            if len(data) > 1:
                self._disk._store(self._node, self._path, data[: len(data) // 2], offset)
            raise
        self._disk._write(self._node, self._path, data, offset)
        return len(data)

    def truncate(self, size: int) -> None:
        self._disk._check("truncate", self._path)
        self._disk._truncate(self._node, self._path, size)

    def fsync(self) -> None:
        self._disk._check("fsync", self._path)
        self._disk._fsync(self._node, self._path)

    def size(self) -> int:
        return len(self._node.data)

    def map(self, length: int) -> memoryview | None:
        return None

    def close(self) -> None:
        pass


class MemoryLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk._locks.discard(self._path)
