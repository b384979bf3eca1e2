"""The folders and files of a disk in memory, with the part of each that is synced.

Pure: no clock but the one passed in. Responsible for names, numbers of files, bytes, and the changes that are not
synced yet. Not responsible for faults, for the capacity of the disk and for the record of its calls, nor for the choice
of the changes that survive a power loss (memory_disk.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pykbroker_log.disk import parent_of


@dataclass(slots=True)
class FileNode:
    file_id: int
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    # Since the last fsync, in order: (offset, data), or (size, None) for a truncation.
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    modified_ms: int = 0
    #: the number of names of the file
    names: int = 1


@dataclass(slots=True)
class FolderNode:
    entries: dict[str, TreeNode] = field(default_factory=dict)
    synced: dict[str, TreeNode] = field(default_factory=dict)
    # Since the last fsync_dir, in order: names that appear, and names that go away, as one atomic change each.
    unsynced: list[tuple[dict[str, TreeNode], tuple[str, ...]]] = field(default_factory=list)

    def change(self, added: dict[str, TreeNode], removed: tuple[str, ...] = ()) -> None:
        self.unsynced.append((added, removed))
        for name in removed:
            self.entries.pop(name, None)
        self.entries.update(added)


TreeNode: TypeAlias = FileNode | FolderNode


def apply_change(data: bytearray, offset: int, change: bytes | None) -> None:
    """Write `change` at `offset`, or truncate to `offset` bytes if it is None. A gap becomes zeros."""
    if change is None:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(change)] = change


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


class FileTree:
    """Folders and files from one root. Methods raise the errors of the operating system."""

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._root = FolderNode()
        self._last_id = 0
        #: every file that was ever created, also those that no folder names now
        self.by_id: dict[int, FileNode] = {}
        #: the bytes of all files
        self.used_bytes = 0

    # -- names

    def find(self, path: str) -> TreeNode | None:
        node: TreeNode = self._root
        for part in parts_of(path):
            if not isinstance(node, FolderNode):
                return None
            child = node.entries.get(part)
            if child is None:
                return None
            node = child
        return node

    def folder(self, path: str) -> FolderNode:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, FolderNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def create(self, path: str) -> FileNode:
        folder = self.folder(parent_of(path))
        node = self._new_file(bytearray(), self._clock())
        folder.change({parts_of(path)[-1]: node})
        return node

    def make_folder(self, path: str) -> None:
        self.folder(parent_of(path)).change({parts_of(path)[-1]: FolderNode()})

    def rename(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        source_folder, target_folder = self.folder(parent_of(source)), self.folder(parent_of(target))
        source_name, target_name = parts_of(source)[-1], parts_of(target)[-1]
        replaced = target_folder.entries.get(target_name)
        if isinstance(replaced, FolderNode):
            raise OSError(errno.ENOTEMPTY, "directory exists", target)
        if isinstance(replaced, FileNode) and replaced is not node:
            replaced.names -= 1
        if source_folder is target_folder:
            source_folder.change({target_name: node}, (source_name,))
        else:
            target_folder.change({target_name: node})
            source_folder.change({}, (source_name,))

    def unlink(self, path: str) -> None:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, FolderNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self.folder(parent_of(path)).change({}, (parts_of(path)[-1],))
        node.names -= 1
        if not node.names:
            self.used_bytes -= len(node.data)

    def link(self, source: str, target: str) -> None:
        node = self.find(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if isinstance(node, FolderNode):
            raise PermissionError(errno.EPERM, "is a directory", source)
        folder = self.folder(parent_of(target))
        if parts_of(target)[-1] in folder.entries:
            raise FileExistsError(errno.EEXIST, "file exists", target)
        folder.change({parts_of(target)[-1]: node})
        node.names += 1

    def remove_folder(self, path: str) -> None:
        if self.folder(path).entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.folder(parent_of(path)).change({}, (parts_of(path)[-1],))

    def sync_folder(self, path: str) -> None:
        node = self.folder(path)
        node.synced = dict(node.entries)
        node.unsynced.clear()

    # -- bytes

    def write(self, node: FileNode, offset: int, data: bytes) -> None:
        self._change(node, offset, data)

    def truncate(self, node: FileNode, size: int) -> None:
        self._change(node, size, None)

    def sync(self, node: FileNode) -> None:
        for offset, change in node.unsynced:
            apply_change(node.synced, offset, change)
        node.unsynced.clear()

    def _change(self, node: FileNode, offset: int, change: bytes | None) -> None:
        before = len(node.data)
        apply_change(node.data, offset, change)
        self.used_bytes += len(node.data) - before
        node.unsynced.append((offset, change))
        node.modified_ms = self._clock()

    def _new_file(self, data: bytearray, modified_ms: int) -> FileNode:
        self._last_id += 1
        node = FileNode(self._last_id, data, bytearray(data), modified_ms=modified_ms)
        self.by_id[node.file_id] = node
        return node

    # -- the whole

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and data of every file, in order."""

        def walk(node: FolderNode, prefix: str) -> Iterator[tuple[str, bytes]]:
            for name, child in sorted(node.entries.items()):
                if isinstance(child, FolderNode):
                    yield from walk(child, f"{prefix}{name}/")
                else:
                    yield prefix + name, bytes(child.data)

        return walk(self._root, "")

    def restarted(
        self,
        entries_of: Callable[[FolderNode], dict[str, TreeNode]],
        data_of: Callable[[FileNode], bytearray],
    ) -> FileTree:
        """Return a new tree with these entries of each folder and these bytes of each file, all synced. The functions
        are called from the root on and in the order of names, `data_of` once for each file."""
        after = FileTree(self._clock)
        copies: dict[int, FileNode] = {}

        def file(node: FileNode) -> FileNode:
            if node.file_id not in copies:
                data = data_of(node)
                after.used_bytes += len(data)
                copies[node.file_id] = after._new_file(data, node.modified_ms)
            else:
                copies[node.file_id].names += 1
            return copies[node.file_id]

        def folder(node: FolderNode) -> FolderNode:
            copied: dict[str, TreeNode] = {}
            for name, child in sorted(entries_of(node).items()):
                copied[name] = folder(child) if isinstance(child, FolderNode) else file(child)
            return FolderNode(copied, dict(copied))

        after._root = folder(self._root)
        return after
