"""`OsDisk`: folders, names and durability, through the operating system's calls.

Responsible for opening, renaming, removing and fsyncing. Not responsible for what happens on an open file (files.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from pykbroker_log.disk import File, FileClosed
from pykbroker_log.os_disk import disk_sync, links
from pykbroker_log.os_disk.background import BackgroundFsyncs, take_open, untried
from pykbroker_log.os_disk.descriptors import Descriptors
from pykbroker_log.os_disk.files import FULL_SYNC, OnMap, OsFile
from pykbroker_log.os_disk.locks import OsLock
from pykbroker_log.os_disk.page_cache import PageCache, sync_file_system

# Inside `OsDisk` mypy would take `list` for `OsDisk.list`.
Contexts: TypeAlias = list[disk_sync.Context]


def _fsync_unless_closed(file: File) -> None:
    try:
        file.fsync()
    except FileClosed:
        pass


class OsDisk:
    """The operating system's disk. `max_open_files` is the limit of `Descriptors`. With `on_map`, files are mapped for
    scans (mapped.py explains where that is allowed), and `on_map` is called with the path before each map."""

    fsync_waits = True

    def __init__(self, *, max_open_files: int | None = None, on_map: OnMap | None = None) -> None:
        self.descriptors = Descriptors(max_open_files)
        self.page_cache = PageCache()
        self._on_map = on_map
        # For fsyncs of many files: the contexts that no thread uses just now.
        self._contexts: Contexts = []
        self._has_contexts = FULL_SYNC is None

    def without_waiting(self) -> AbstractContextManager[None]:
        """Inside this context, reads of this thread raise `ColdRead` instead of waiting for a device. It cannot be
        nested."""
        return self.page_cache

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(self.descriptors, self.page_cache, path, create=create, on_map=self._on_map)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written to, in wall-clock milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def scan(self, path: str) -> Sequence[tuple[str, int]]:
        """Return (name, size in bytes) of every entry of a folder, in order."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.stat().st_size))
                except FileNotFoundError:
                    continue  # deleted since the listing, or a link without a target
        found.sort()
        return found

    def make_dirs(self, path: str) -> None:
        # Private, because the metadata log has passwords and SCRAM keys in clear text, and other files contain records.
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def link(self, source: str, target: str) -> None:
        links.link(source, target)

    def copy(self, source: str, target: str, *, keeps_time: bool = False) -> int:
        return links.copy(source, target, keeps_time=keeps_time)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_file_system(fd)
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
        taken = take_open(files)
        results = self._fsync_at_once([descriptor.fd for _, descriptor in taken])
        for file in untried(taken, results):
            _fsync_unless_closed(file)

    def _fsync_at_once(self, descriptors: Sequence[int], *, folders: bool = False) -> Sequence[int]:
        """Call Context.fsync for several descriptors. Returns -1 for each if there is only one, or no context."""
        if len(descriptors) > 1 and (context := self._take_context()) is not None:
            # Each thread has a context for itself during the call.
            results = context.fsync(descriptors, folders=folders)
            self._contexts.append(context)
            return results
        return [-1] * len(descriptors)

    def _take_context(self) -> disk_sync.Context | None:
        if not self._has_contexts:
            return None
        try:
            return self._contexts.pop()
        except IndexError:
            pass
        try:
            return disk_sync.Context()
        except disk_sync.Unavailable:
            self._has_contexts = False
            return None

    def fsyncs(self) -> BackgroundFsyncs | None:
        context = self._take_context()
        if context is None:
            return None
        try:
            return BackgroundFsyncs(context, self._contexts)
        except OSError:
            # The process has no free descriptor.
            self._contexts.append(context)
            return None

    def usage(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
