"""A file that a process reads through a map: what lies in memory is read without a call and without a copy.

Responsible for the map of one file and for files that grow. Not responsible for a map that fails: when the file was cut
off beneath it, or the device cannot read, touching it is a SIGBUS, which ends the process. So only processes map whose
end costs nothing but their work: workers (pykbroker/runtime/workers.py) and `pykbroker dump-log` (cli/apart.py).

Invariants:
* Nothing is ever stored through a map.
* A map lives as long as a view of it, no longer than the scan.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykbroker_log.os_disk.files import OsFile


class MappedFile:
    __slots__ = ("_file", "_view")

    def __init__(self, file: OsFile) -> None:
        self._file = file
        self._view = memoryview(b"")

    def pread(self, size: int, offset: int) -> memoryview:
        """A view; short only at the end of the file. Raises OSError."""
        if offset + size > len(self._view) and self.size() > len(self._view):
            # The first time, or the file has grown.
            self._map()
        return self._view[offset : offset + size]

    def size(self) -> int:
        """What it is now, whatever the map says."""
        return self._file.size()

    def _map(self) -> None:
        size = self._file.size()
        # Nothing cannot be mapped. Views of a map before this one keep it.
        self._view = memoryview(b"")
        if size:
            mapped = mmap.mmap(self._file.take().fd, size, access=mmap.ACCESS_READ)
            mapped.madvise(mmap.MADV_SEQUENTIAL)
            self._view = memoryview(mapped)
