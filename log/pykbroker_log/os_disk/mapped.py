"""A file that a process reads through a map: bytes in memory are read without a call and without a copy.

Responsible for the map of one file, also of a file that grows. Not responsible for a map that fails: if the file was
truncated under it, or the device cannot read, touching it raises SIGBUS, which ends the process. So a process may map
files only if its end loses no more than its own work. These are workers (pykbroker/runtime/workers.py) and `pykbroker
dump-log` (tools/commands/apart.py).

Invariants:
* Nothing is ever written through a map.
* A map ends with its last view, which is at the end of the scan at the latest.
* A file that cannot be mapped (its file system has no maps, no memory areas are left) is read instead.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pykbroker_log.os_disk.descriptors import Descriptor


class SizedFile(Protocol):
    """The part of a file that is used here."""

    def pread(self, size: int, offset: int) -> bytes: ...

    def size(self) -> int: ...

    def take(self) -> Descriptor: ...


class MappedFile:
    __slots__ = ("_file", "_is_mapped", "_view")

    def __init__(self, file: SizedFile) -> None:
        self._file = file
        self._is_mapped = True
        self._view = memoryview(b"")

    def pread(self, size: int, offset: int) -> memoryview:
        """Return a view, which is short only at the end of the file. Raises OSError."""
        if self._is_mapped and offset + size > len(self._view) and self.size() > len(self._view):
            # This is the first read, or the file has grown.
            self._map()
        if not self._is_mapped:
            return memoryview(self._file.pread(size, offset))
        return self._view[offset : offset + size]

    def size(self) -> int:
        """Return the current size of the file, which may differ from the map's."""
        return self._file.size()

    def _map(self) -> None:
        size = self._file.size()
        # An empty file cannot be mapped. Views of an earlier map keep that map.
        self._view = memoryview(b"")
        if not size:
            return
        descriptor = self._file.take()
        try:
            mapped = mmap.mmap(descriptor.fd, size, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: the file has become shorter
            self._is_mapped = False
            return
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        self._view = memoryview(mapped)
