"""`VolatileDisk`: the operating system's disk for files that nobody reads after a loss of power.

A node in a temporary directory would spend most of its start, and of its stop, waiting for a device. If the process is
killed, the system's cache still has what it wrote.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pykbroker_log.disk import File
from pykbroker_log.os_disk.background import BackgroundFsyncs
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsFile


class _VolatileFile(OsFile):
    __slots__ = ()

    IS_DURABLE = False

    def fsync(self) -> None:
        """Wait for nothing. Raises FileClosed, as the fsync of a file that its owner has closed."""
        self.take()

    def write_back(self, offset: int, length: int) -> None:
        """Leave the time of the write to the system."""


class VolatileDisk(OsDisk):
    """An `OsDisk` that promises nothing for a loss of power: it never asks a device to write, and waits for none."""

    fsync_waits = False

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return _VolatileFile(self.descriptors, self.page_cache, path, create=create, on_map=self._on_map)

    def fsync_dir(self, path: str) -> None:
        os.stat(path)

    def fsync_dirs(self, paths: Sequence[str]) -> dict[str, FileNotFoundError]:
        missing: dict[str, FileNotFoundError] = {}
        for path in paths:
            try:
                os.stat(path)
            except FileNotFoundError as error:
                missing[path] = error
        return missing

    def sync_all(self, path: str) -> None:
        os.stat(path)

    def fsync_files(self, files: Sequence[File]) -> None:
        """Do nothing. Files that are closed are left out, and the others need no fsync."""

    def fsyncs(self) -> BackgroundFsyncs | None:
        """Return None, because nothing goes on in the background."""
        return None
