"""A disk in memory that records its calls and can lose power or fail when a test asks for it.

Responsible for a `Disk` and its `File`s as disk.py describes them, for faults and for the record of the calls. Also
responsible for the part of the data that is left after a crash between any two calls. Not responsible for the folders
and files themselves (file_tree.py), nor for functions on whole files (disk.py: `read_file`, `write_atomic`).

Invariants:
* Synced data is kept apart from data that was only written, so that power can fail between any two calls.
* A write that fails has written half of its data, so that a caller fails its tests if it expects nothing to be written.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pykbroker_log import names
from pykbroker_log.disk import Buffer, ColdRead, File, FileClosed, parent_of
from pykbroker_log.file_tree import FileNode, FileTree, FolderNode, TreeNode, apply_change, parts_of


class Survive(enum.Enum):
    """The part of the unsynced data that survives a power loss."""

    NOTHING = "nothing"  # each file and folder is as at its last fsync
    EVERYTHING = "everything"  # as if only the process had been killed
    CHOSEN = "chosen"  # per file a prefix of its writes, per folder any subset of its changes
    IN_ORDER = "in order"  # the same, but per folder a prefix, as with a file system's journal


@dataclass(slots=True, frozen=True)
class DiskCall:
    """One recorded call that changed something or made something durable."""

    operation: str  # create make_dir pwritev truncate fsync rename link unlink remove_dir fsync_dir
    path: str
    file_id: int = -1
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass(slots=True)
class _Failure:
    operation: str
    error: int
    path_contains: str
    skip: int
    count: int | None


class _PowerLoss:
    """The choice of the changes that survive one power loss."""

    def __init__(self, survive: Survive, torn_id: int, choose: Callable[[int], int] | None) -> None:
        self._survive = survive
        #: the file whose last write is torn, or -1
        self._torn_id = torn_id
        self._choose = choose

    def _pick(self, bound: int) -> int:
        assert self._choose is not None, f"{self._survive.name} needs choose"
        return self._choose(bound)

    def data_of(self, node: FileNode) -> bytearray:
        data = bytearray(node.synced)
        changes = node.unsynced
        draws = self._survive in (Survive.CHOSEN, Survive.IN_ORDER)
        last_torn = bool(changes) and changes[-1][1] is not None and node.file_id == self._torn_id
        match self._survive:
            case Survive.NOTHING:
                kept = changes[-1:] if last_torn else []
            case Survive.EVERYTHING:
                kept = changes
            case Survive.CHOSEN | Survive.IN_ORDER:
                kept = changes[: self._pick(len(changes) + 1)]
                last_torn = bool(kept) and kept[-1][1] is not None and self._pick(2) == 1
        for index, (offset, change) in enumerate(kept):
            if change is not None and last_torn and index == len(kept) - 1:
                cut = self._pick(len(change) + 1) if draws else len(change) // 2
                # A file system may have written the new size before the data; then the rest is zeros.
                zeros = bytes(len(change) - cut) if draws and self._pick(4) == 0 else b""
                change = change[:cut] + zeros
            apply_change(data, offset, change)
        return data

    def entries_of(self, node: FolderNode) -> dict[str, TreeNode]:
        entries = dict(node.synced)
        changes = node.unsynced
        if self._survive is Survive.IN_ORDER:
            changes = changes[: self._pick(len(changes) + 1)]
        for added, removed in changes:
            match self._survive:
                case Survive.NOTHING:
                    survives = False
                case Survive.EVERYTHING | Survive.IN_ORDER:
                    survives = True
                case Survive.CHOSEN:
                    survives = bool(self._pick(2))
            if survives:
                for name in removed:
                    entries.pop(name, None)
                entries.update(added)
        return entries


class _FaultyCalls:
    """The calls of a disk that a test wants to fail."""

    def __init__(self) -> None:
        self._failures: list[_Failure] = []
        #: called before each operation, with the operation and its path; an exception of it ends the operation
        self.interfere: Callable[[str, str], None] | None = None

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


class MemoryDisk(_FaultyCalls):
    """A disk in memory that records its calls and can lose power or fail on demand.

    `calls` is the record. `replay(calls[:n])` returns the disk after the first n of them, and `power_loss(...)` returns
    the disk that the next start would find. Both return new disks and leave the old one unchanged. `clock` gives files
    their time of change, which is always 0 without a clock.
    """

    fsync_waits = True

    def __init__(
        self, *, record: bool = True, capacity_bytes: int = 1 << 40, clock: Callable[[], int] = lambda: 0
    ) -> None:
        super().__init__()
        self.tree = FileTree(clock)
        self.calls: list[DiskCall] = []
        self.capacity_bytes = capacity_bytes
        self._record = record
        self._locks: set[str] = set()
        #: called at every read that must not wait; returns whether the file has just left memory
        self.evict: Callable[[], bool] | None = None
        #: True once a file has got a second name
        self.has_links = False
        self._cold: set[int] = set()
        self._hurried = False

    @property
    def used_bytes(self) -> int:
        return self.tree.used_bytes

    # -- loss of power

    def power_loss(
        self, survive: Survive = Survive.NOTHING, *, torn: bool = False, choose: Callable[[int], int] | None = None
    ) -> MemoryDisk:
        """Return the disk after the power came back. With `torn`, the first half of the last write is there, if it was
        not synced.

        `choose(n)` draws from [0, n) and is needed for `CHOSEN` and `IN_ORDER`.
        """
        torn_id = self.calls[-1].file_id if torn and self.calls and self.calls[-1].operation == "pwritev" else -1
        after = MemoryDisk(record=self._record, capacity_bytes=self.capacity_bytes)
        loss = _PowerLoss(survive, torn_id, choose)
        after.tree = self.tree.restarted(loss.entries_of, loss.data_of)
        after.evict = self.evict
        after.has_links = self.has_links
        return after

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and data of every file, in order."""
        return self.tree.contents()

    @classmethod
    def replay(cls, calls: Iterable[DiskCall]) -> MemoryDisk:
        disk = cls()
        for call in calls:
            disk.repeat(call)
        return disk

    def repeat(self, call: DiskCall) -> None:
        """Do one recorded call again; the calls before it must have been repeated already."""
        tree = self.tree
        match call.operation:
            case "create":
                assert tree.create(call.path).file_id == call.file_id
            case "make_dir":
                tree.make_folder(call.path)
            case "pwritev":
                tree.write(tree.by_id[call.file_id], call.offset, call.data)
            case "truncate":
                tree.truncate(tree.by_id[call.file_id], call.offset)
            case "fsync":
                tree.sync(tree.by_id[call.file_id])
            case "rename":
                tree.rename(call.path, call.target)
            case "link":
                tree.link(call.path, call.target)
                self.has_links = True
            case "unlink":
                tree.unlink(call.path)
            case "remove_dir":
                tree.remove_folder(call.path)
            case "fsync_dir":
                tree.sync_folder(call.path)
            case _:
                raise ValueError(call.operation)
        self._note(call)

    # -- page cache

    def make_cold(self) -> None:
        """Remove all present files from memory: reads that must not wait raise ColdRead until `load`. (Otherwise every
        file is in memory.)"""
        self._cold.update(self.tree.by_id)

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
        node = self.tree.find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check("create", path)
            node = self.tree.create(path)
            self._note(DiskCall("create", path, node.file_id))
        if isinstance(node, FolderNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(self, node, path)

    def exists(self, path: str) -> bool:
        return self.tree.find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self.tree.find(path), FolderNode)

    def modified_ms(self, path: str) -> int:
        node = self.tree.find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node.modified_ms

    def list(self, path: str) -> list[str]:
        self._check("list", path)
        return sorted(self.tree.folder(path).entries)

    def scan(self, path: str) -> Sequence[tuple[str, int]]:
        self._check("list", path)
        nodes = self.tree.folder(path).entries.items()
        return sorted((name, len(node.data) if isinstance(node, FileNode) else 0) for name, node in nodes)

    def make_dirs(self, path: str) -> None:
        so_far = ""
        for part in parts_of(path):
            so_far = f"{so_far}/{part}" if so_far or path.startswith("/") else part
            if not self.exists(so_far):
                self._check("make_dir", so_far)
                self.tree.make_folder(so_far)
                self._note(DiskCall("make_dir", so_far))

    def rename(self, source: str, target: str) -> None:
        self._check("rename", source)
        self.tree.rename(source, target)
        self._note(DiskCall("rename", source, target=target))

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        self.tree.unlink(path)
        self._note(DiskCall("unlink", path))

    def link(self, source: str, target: str) -> None:
        self._check("link", target)
        self.tree.link(source, target)
        self.has_links = True
        self._note(DiskCall("link", source, target=target))

    def copy(self, source: str, target: str, *, keeps_time: bool = False) -> int:
        self._check("copy", target)
        node = self.tree.find(source)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if self.exists(target):
            raise FileExistsError(errno.EEXIST, "file exists", target)
        written = self.open(target, create=True)
        try:
            if node.data:
                written.pwritev([bytes(node.data)], 0)
        except OSError:
            self.unlink(target)
            raise
        if keeps_time:
            written._node.modified_ms = node.modified_ms
        return len(node.data)

    def sync_all(self, path: str) -> None:
        for name in self.list(path):
            child = f"{path}/{name}"
            if self.is_dir(child):
                self.sync_all(child)
            else:
                self.open(child).fsync()
        self.fsync_dir(path)

    def remove_dir(self, path: str) -> None:
        self._check("remove_dir", path)
        self.tree.remove_folder(path)
        self._note(DiskCall("remove_dir", path))

    def fsync_dir(self, path: str) -> None:
        self._check("fsync_dir", path)
        self.tree.sync_folder(path)
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
        return self.capacity_bytes, max(0, self.capacity_bytes - self.tree.used_bytes)

    def _note(self, call: DiskCall) -> None:
        if self._record:
            self.calls.append(call)


class MemoryFile:
    """A file of a MemoryDisk; the whole file is in memory or none of it."""

    __slots__ = ("_closed", "_disk", "_node", "_path")

    def __init__(self, disk: MemoryDisk, node: FileNode, path: str) -> None:
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

    def _own(self, keep: int | None = None) -> None:
        """Put a copy in the place of this path if the file has other names (disk.py). The copy has the first `keep`
        bytes, or all if `keep` is None."""
        disk, path = self._disk, self._path
        if self._node.names and (named := disk.tree.find(path)) is not self._node:
            if not isinstance(named, FileNode):
                raise FileNotFoundError(errno.ENOENT, "the file has only other names", path)
            # Another open file of this path has put a copy in its place.
            self._node = named
        if self._node.names < 2:
            return
        temporary = path + names.UNFINISHED
        if disk.exists(temporary):
            disk.unlink(temporary)
        copy = disk.open(temporary, create=True)
        try:
            if data := bytes(self._node.data[:keep]):
                copy.pwritev([data], 0)
            copy.fsync()
            disk.rename(temporary, path)
        except OSError:
            disk.unlink(temporary)
            raise
        self._node = copy._node
        disk.fsync_dir(parent_of(path))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if self._disk.has_links:
            self._own()
        data = b"".join(buffers)
        try:
            self._disk._check("pwritev", self._path)
        except OSError:
            # Half of the data reaches the file, so that a caller fails its tests if it expects nothing to be written.
            if len(data) > 1:
                self._store(data[: len(data) // 2], offset)
            raise
        growth = max(0, offset + len(data) - len(self._node.data))
        room = self._disk.capacity_bytes - self._disk.used_bytes
        if growth > room:
            # As on a real disk, what still fits is written before the error is raised.
            fits = max(0, len(data) - (growth - room))
            if fits:
                self._store(data[:fits], offset)
            raise OSError(errno.ENOSPC, "no space left", self._path)
        self._store(data, offset)
        return len(data)

    def _store(self, data: bytes, offset: int) -> None:
        self._disk.tree.write(self._node, offset, data)
        self._disk._note(DiskCall("pwritev", self._path, self._node.file_id, offset, data))

    def truncate(self, size: int) -> None:
        if self._disk.has_links:
            self._own(size)
        self._disk._check("truncate", self._path)
        self._disk.tree.truncate(self._node, size)
        self._disk._note(DiskCall("truncate", self._path, self._node.file_id, size))

    def fsync(self) -> None:
        if self._closed:
            raise FileClosed(errno.ENOENT, "the file is closed", self._path)
        self._disk._check("fsync", self._path)
        self._disk.tree.sync(self._node)
        self._disk._note(DiskCall("fsync", self._path, self._node.file_id))

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
