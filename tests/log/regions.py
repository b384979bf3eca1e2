"""Regions of a file, as a read returns them for sendfile, in memory."""

from __future__ import annotations

import errno


class CountingRegion:
    """A region in memory. It is not resident until it is loaded, if `cold`."""

    def __init__(self, data: bytes, *, cold: bool = False) -> None:
        self.data = data
        self.read_bytes = 0
        self._cold = cold

    def __len__(self) -> int:
        return len(self.data)

    def is_resident(self, position: int, length: int) -> bool:
        return not self._cold

    def load(self, position: int, length: int) -> None:
        self._cold = False

    def send(self, socket: int, position: int, length: int) -> int:
        raise AssertionError("nothing is sent here")

    def pread(self, size: int, position: int) -> bytes:
        found = self.data[position : position + size]
        self.read_bytes += len(found)
        return found

    def part(self, position: int, length: int) -> CountingRegion:
        return CountingRegion(self.data[position : position + length], cold=self._cold)


class BrokenRegion(CountingRegion):
    """A region of a disk that fails."""

    def pread(self, size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "told to fail")

    def part(self, position: int, length: int) -> BrokenRegion:
        return BrokenRegion(self.data[position : position + length])
