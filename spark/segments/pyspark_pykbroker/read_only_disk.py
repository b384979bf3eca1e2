"""Files of a broker, read through maps and never written: the part of `pykbroker_log.disk.Disk` that indexes need.

Invariant: nothing here opens a file for writing or makes one, so that directories may be mounted read-only.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pykbroker_log.disk import Disk


class MappedForReading:
    """One file as it was when it was opened. It stays readable after it is renamed or unlinked."""

    __slots__ = ("inode", "view")

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            #: device and inode: a name with another pair is another file
            self.inode = (status.st_dev, status.st_ino)
            # An empty file cannot be mapped.
            self.view = memoryview(
                mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ) if status.st_size else b""
            )

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.view[offset : offset + size])

    def size(self) -> int:
        return len(self.view)

    def close(self) -> None:
        """The map is released with its last view."""


class ReadOnlyDisk:
    def open(self, path: str, *, create: bool = False) -> MappedForReading:
        """Raises FileNotFoundError, also with `create`."""
        return MappedForReading(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)


#: The disk for indexes. It opens, reads and returns sizes; the rest of the protocol is for writers.
READ_ONLY = cast("Disk", ReadOnlyDisk())
