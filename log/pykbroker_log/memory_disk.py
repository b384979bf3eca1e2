"""A disk in memory that records its calls and can lose power or fail when a test asks for it.

Responsible for a `Disk` and its `File`s as disk.py describes them, and for what is left of them after a crash between
any two calls. Not responsible for functions on whole files (disk.py: `read_file`, `write_atomic`).

Invariants:
* Synced data is kept apart from data that was only written, so that power can fail between any two calls.
* A write that fails has written half of its data, so that a caller fails its tests if it expects nothing to be written.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pykbroker_log.disk import Buffer, ColdRead, File, FileClosed, parent_of


class Survive(enum.Enum):
    """The part of the unsynced data that survives a power loss."""

    NOTHING = "nothing"  # each file and folder is as at its last fsync
    EVERYTHING = "everything"  # as if only the process had been killed
    CHOSEN = "chosen"  # per file a prefix of its writes, per folder any subset of its changes
    IN_ORDER = "in order"  # the same, but per folder a prefix, as with a file system's journal


@dataclass(slots=True, frozen=True)
class DiskCall:
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
    modified_ms: int = 0


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
    """A disk in memory that records its calls and can lose power or fail on demand.

    `calls` is the record. `replay(calls[:n])` returns the disk after the first n of them, and `power_loss(...)` returns
    the disk that the next start would find. Both return new disks and leave the old one unchanged. `clock` gives files
    their time of change, which is always 0 without a clock.
    """

    def __init__(
        self, *, record: bool = True, capacity_bytes: int = 1 << 40, clock: Callable[[], int] = lambda: 0
    ) -> None:
        self.calls: list[DiskCall] = []
        self._clock = clock
        self.capacity_bytes = capacity_bytes
        self._record = record
        self._root = _DirNode()
        self._files = 0
        self._by_id: dict[int, _FileNode] = {}
        self._used = 0
        self._locks: set[str] = set()
        self._failures: list[_Failure] = []
        #: called before each operation, with the operation and its path; an exception of it ends the operation
        self.interfere: Callable[[str, str], None] | None = None
        #: called at every read that must not wait; returns whether the file has just left memory
        self.evict: Callable[[], bool] | None = None
        self._cold: set[int] = set()
        self._hurried = False

    @property
    def used_bytes(self) -> int:
        return self._used

    # -- faults

    def fail_next(
        self, operation: str, error: int = errno.EIO, *, path_contains: str = "", skip: int = 0, count: int | None = 1
    ) -> None:
        """Make `operation` fail after `skip` calls, `count` times (always if `count` is None).

        `operation` is one of `DiskCall.operation`, or "open", "pread", "list".
        """
        self._failures.append(_Failure(operation, error, path_contains, skip, count))

    def heal(self) -> None:
        self._failures.clear()

    def _check(self, operation: str, path: str) -> None:
        if self.interfere is not None:
            self.interfere(operation, path)
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
        """Return the disk after the power came back. With `torn`, the first half of the last write is there, if it was
        not synced.

        `choose(n)` draws from [0, n) and is needed for `CHOSEN` and `IN_ORDER`.
        """
        torn_id = self.calls[-1].file_id if torn and self.calls and self.calls[-1].operation == "pwritev" else -1
        after = MemoryDisk(record=self._record, capacity_bytes=self.capacity_bytes, clock=self._clock)
        copies: dict[int, _FileNode] = {}
        draws = survive in (Survive.CHOSEN, Survive.IN_ORDER)

        def pick(bound: int) -> int:
            assert choose is not None, f"{survive.name} needs choose"
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
                case Survive.CHOSEN | Survive.IN_ORDER:
                    kept = changes[: pick(len(changes) + 1)]
                    last_torn = bool(kept) and kept[-1][1] is not None and pick(2) == 1
            for index, (offset, change) in enumerate(kept):
                if change is not None and last_torn and index == len(kept) - 1:
                    cut = pick(len(change) + 1) if draws else len(change) // 2
                    # A file system may have written the new size before the data; then the rest is zeros.
                    zeros = bytes(len(change) - cut) if draws and pick(4) == 0 else b""
                    change = change[:cut] + zeros
                _apply(data, offset, change)
            copy = _FileNode(after._next_id(), data, bytearray(data), modified_ms=node.modified_ms)
            after._by_id[copy.file_id] = copy
            after._used += len(data)
            copies[node.file_id] = copy
            return copy

        def folder(node: _DirNode) -> _DirNode:
            entries = dict(node.synced)
            changes = node.unsynced
            if survive is Survive.IN_ORDER:
                changes = changes[: pick(len(changes) + 1)]
            for added, removed in changes:
                if survive in (Survive.EVERYTHING, Survive.IN_ORDER) or (survive is Survive.CHOSEN and pick(2)):
                    for name in removed:
                        entries.pop(name, None)
                    entries.update(added)
            copied: dict[str, _FileNode | _DirNode] = {}
            for name, child in sorted(entries.items()):
                copied[name] = folder(child) if isinstance(child, _DirNode) else file(child)
            return _DirNode(copied, dict(copied))

        after.evict = self.evict
        after._root = folder(self._root)
        return after

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and data of every file, in order."""

        def walk(node: _DirNode, prefix: str) -> Iterator[tuple[str, bytes]]:
            for name, child in sorted(node.entries.items()):
                if isinstance(child, _DirNode):
                    yield from walk(child, f"{prefix}{name}/")
                else:
                    yield prefix + name, bytes(child.data)

        return walk(self._root, "")

    @classmethod
    def replay(cls, calls: Iterable[DiskCall]) -> MemoryDisk:
        disk = cls()
        for call in calls:
            disk.repeat(call)
        return disk

    def repeat(self, call: DiskCall) -> None:
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

    # -- page cache

    def make_cold(self) -> None:
        """Remove all present files from memory: reads that must not wait raise ColdRead until `load`. (Otherwise every
        file is in memory.)"""
        self._cold.update(self._by_id)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        self._hurried = True
        try:
            yield
        finally:
            self._hurried = False

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

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node.modified_ms

    def list(self, path: str) -> list[str]:
        self._check("list", path)
        return sorted(self._dir(path).entries)

    def scan(self, path: str) -> Sequence[tuple[str, int]]:
        self._check("list", path)
        nodes = self._dir(path).entries.items()
        return sorted((name, len(node.data) if isinstance(node, _FileNode) else 0) for name, node in nodes)

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
        self._note(DiskCall("rename", source, target=target))

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _DirNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._dir(parent_of(path)).change({}, (_parts(path)[-1],))
        self._used -= len(node.data)
        self._note(DiskCall("unlink", path))

    def remove_dir(self, path: str) -> None:
        self._check("remove_dir", path)
        if self._dir(path).entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self._dir(parent_of(path)).change({}, (_parts(path)[-1],))
        self._note(DiskCall("remove_dir", path))

    def fsync_dir(self, path: str) -> None:
        self._check("fsync_dir", path)
        node = self._dir(path)
        node.synced = dict(node.entries)
        node.unsynced.clear()
        self._note(DiskCall("fsync_dir", path))

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, FileNotFoundError]:
        missing: dict[str, FileNotFoundError] = {}
        for path in paths:
            try:
                self.fsync_dir(path)
            except FileNotFoundError as error:
                missing[path] = error
        return missing

    def fsync_files(self, files: Sequence[File]) -> None:
        failed: OSError | None = None
        for file in files:
            try:
                file.fsync()
            except FileClosed:
                continue
            except OSError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def fsyncs(self) -> None:
        return None

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return MemoryLock(self, path)

    def usage(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self._used)

    # -- the parts

    def _note(self, call: DiskCall) -> None:
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
        node = _FileNode(self._next_id(), modified_ms=self._clock())
        self._dir(parent_of(path)).change({_parts(path)[-1]: node})
        self._by_id[node.file_id] = node
        self._note(DiskCall("create", path, node.file_id))
        return node

    def _make_dir(self, path: str) -> None:
        self._dir(parent_of(path)).change({_parts(path)[-1]: _DirNode()})
        self._note(DiskCall("make_dir", path))

    def _write(self, node: _FileNode, path: str, data: bytes, offset: int) -> None:
        growth = max(0, offset + len(data) - len(node.data))
        room = self.capacity_bytes - self._used
        if growth > room:
            # As on a real disk, what still fits is written before the error is raised.
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
        node.modified_ms = self._clock()
        self._note(DiskCall("pwritev", path, node.file_id, offset, data))

    def _truncate(self, node: _FileNode, path: str, size: int) -> None:
        before = len(node.data)
        _apply(node.data, size, None)
        self._used += len(node.data) - before
        node.unsynced.append((size, None))
        node.modified_ms = self._clock()
        self._note(DiskCall("truncate", path, node.file_id, size))

    def _fsync(self, node: _FileNode, path: str) -> None:
        for offset, change in node.unsynced:
            _apply(node.synced, offset, change)
        node.unsynced.clear()
        self._note(DiskCall("fsync", path, node.file_id))


class MemoryFile:
    """A file of a MemoryDisk; the whole file is in memory or none of it."""

    __slots__ = ("_closed", "_disk", "_node", "_path")

    def __init__(self, disk: MemoryDisk, node: _FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._closed = False

    def pread(self, size: int, offset: int) -> bytes:
        disk = self._disk
        disk._check("pread", self._path)
        if disk._hurried and self._is_cold():
            raise ColdRead(self, offset, size)
        return bytes(self._node.data[offset : offset + size])

    def reader(self) -> MemoryFile:
        return self

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        try:
            self._disk._check("pwritev", self._path)
        except OSError:
            # Half of the data reaches the file, so that a caller fails its tests if it expects nothing to be written.
            if len(data) > 1:
                self._disk._store(self._node, self._path, data[: len(data) // 2], offset)
            raise
        self._disk._write(self._node, self._path, data, offset)
        return len(data)

    def truncate(self, size: int) -> None:
        self._disk._check("truncate", self._path)
        self._disk._truncate(self._node, self._path, size)

    def fsync(self) -> None:
        if self._closed:
            raise FileClosed(errno.ENOENT, "the file is closed", self._path)
        self._disk._check("fsync", self._path)
        self._disk._fsync(self._node, self._path)

    def _is_cold(self) -> bool:
        cold = self._disk._cold
        if self._disk.evict is not None and self._disk.evict():
            cold.add(self._node.file_id)
        return self._node.file_id in cold

    def size(self) -> int:
        return len(self._node.data)

    def load(self, offset: int, length: int) -> None:
        self._disk._cold.discard(self._node.file_id)

    def region(self, offset: int, length: int) -> None:
        return None

    def write_back(self, offset: int, length: int) -> None:
        """Do nothing: the call promises nothing, so it lets nothing survive a power loss."""

    def close(self) -> None:
        self._closed = True


class MemoryLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk._locks.discard(self._path)
