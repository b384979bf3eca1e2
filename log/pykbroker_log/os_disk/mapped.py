"""A file that a process reads through a map: what lies in memory is read without a call and without a copy.

Responsible for the map of one file and for files that grow. Not responsible for a map that fails: when the file was cut
off beneath it, or the device cannot read, touching it is a SIGBUS, which ends the process. So only processes map whose
end costs nothing but their work: workers (pykbroker/runtime/workers.py) and `pykbroker dump-log`
(tools/commands/apart.py).

Invariants:
* Nothing is ever stored through a map.
* A map lives as long as a view of it, no longer than the scan.
* A file that cannot be mapped (its file system has no maps, no memory areas are left) is read.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pykbroker_log.os_disk.descriptors import Descriptor


class SizedFile(Protocol):
    """What is taken of a file here."""

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
        """A view; short only at the end of the file. Raises OSError."""
        if self._is_mapped and offset + size > len(self._view) and self.size() > len(self._view):
            # The first time, or the file has grown.
            self._map()
        if not self._is_mapped:
            return memoryview(self._file.pread(size, offset))
        return self._view[offset : offset + size]

    def size(self) -> int:
        """What it is now, whatever the map says."""
        return self._file.size()

    def _map(self) -> None:
        size = self._file.size()
        # Nothing cannot be mapped. Views of a map before this one keep it.
        self._view = memoryview(b"")
        if not size:
            return
        descriptor = self._file.take()
        try:
            mapped = mmap.mmap(descriptor.fd, size, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: it has become shorter
            self._is_mapped = False
            return
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        self._view = memoryview(mapped)
