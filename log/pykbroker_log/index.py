"""A sorted array of fixed-size entries in a file: the common part of the offset index and the time index.

Responsible for: keeping entries in order on disk, finding one, cutting the array. Not responsible for what they mean.

Invariants:
* Keys are strictly increasing. The first `_stored` entries are on disk; the newest are only in memory (`_keys`,
  `_values`) until `write_pending`. The active segment is always scanned after a crash, so its index need not be
  complete on disk, and one write for a few hundred entries replaces one write per entry.
* The file is never written through a map: on a full disk that would raise SIGBUS, while `pwritev` raises an error.
* Entries of zeros at the end are not entries: Apache Kafka preallocates the index of its active segment, and a crash
  leaves those zeros.
"""

from __future__ import annotations

import errno
import struct
from array import array
from bisect import bisect_right
from typing import ClassVar

from pykbroker_log.disk import Disk, File

#: An index writes its entries when it has this many in memory.
MAX_PENDING_ENTRIES = 512
# The size of one read. A wrong guess costs one more read, or several.
_PAGE_BYTES = 4096


#: Shared by all indexes without pending entries; never changed. Two arrays take 160 bytes, and a node has thousands of
#: indexes.
_NOTHING_PENDING = array("q")


class SortedIndex:
    """Entries of (key, value); `ENTRY` packs them. A key below 0 never occurs."""

    ENTRY: ClassVar[struct.Struct]
    KEY_TYPE: ClassVar[str]
    #: True if the keys begin near zero, and True if the values do. Then the position of an entry is guessed from the
    #: last entry alone.
    FROM_ZERO: ClassVar[tuple[bool, bool]]

    __slots__ = ("_disk", "_file", "_keys", "_last", "_stored", "_values", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._file: File | None = None
        self._stored = -1  # unknown until the file is opened
        self._keys = self._values = _NOTHING_PENDING
        self._last: tuple[int, int] | None = None

    # -- size

    def __len__(self) -> int:
        self._open()
        return self._stored + len(self._keys)

    @property
    def pending(self) -> int:
        """The number of entries that are not in the file yet."""
        return len(self._keys)

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry, relative to the segment, or None."""
        self._open()
        return self._last

    # -- change

    def add(self, key: int, value: int) -> None:
        """Add an entry. The caller has checked that `key` is larger than the last key."""
        if self._keys is _NOTHING_PENDING:
            self._keys = array(self.KEY_TYPE)
            self._values = array("q")
        self._keys.append(key)
        self._values.append(value)
        self._last = (key, value)

    def write_pending(self) -> None:
        if not self._keys:
            return
        file = self._open()
        pack = self.ENTRY.pack
        data = b"".join([pack(key, value) for key, value in zip(self._keys, self._values, strict=True)])
        file.pwritev([data], self._stored * self.ENTRY.size)
        self._stored += len(self._keys)
        self._keys = self._values = _NOTHING_PENDING

    def keep(self, count: int) -> None:
        """Drop all entries but the first `count`."""
        file = self._open()
        if count > self._stored:
            del self._keys[count - self._stored :]
            del self._values[count - self._stored :]
        else:
            self._keys = self._values = _NOTHING_PENDING
            self._stored = count
        # Also cut off what a crash or a preallocation left after the last entry. Truncate only if the size is wrong,
        # because a file system may write its journal for a truncation that changes nothing.
        size = self._stored * self.ENTRY.size
        if file.size() != size:
            file.truncate(size)
        self._last = self._at(count - 1) if count else None

    @property
    def file(self) -> File:
        """The open file. It is opened, and created if necessary, at the first use."""
        return self._open()

    def fsync(self) -> None:
        self._open().fsync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- find

    def floor(self, target: int, *, by_value: bool = False) -> int:
        """Return the position of the last entry whose key (or value, if values increase too) is at most `target`; -1 if
        there is none."""
        return self._find(target, int(by_value))[0]

    def floor_entry(self, target: int, *, by_value: bool = False) -> tuple[int, int] | None:
        """Return the entry that `floor` finds, or None."""
        return self._find(target, int(by_value))[1]

    def _find(self, target: int, column: int) -> tuple[int, tuple[int, int] | None]:
        self._open()
        pending = self._values if column else self._keys
        if pending and target >= pending[0]:
            found = bisect_right(pending, target) - 1
            return self._stored + found, (self._keys[found], self._values[found])
        low, high, page = self._narrow(target, column)
        if low == high:
            return -1, None
        if page is None:
            page = self._read(low, high - low)
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        first, low, high = low, 0, high - low
        while low < high:
            middle = (low + high) // 2
            if unpack(page, middle * size)[column] <= target:
                low = middle + 1
            else:
                high = middle
        if not low:
            return -1, None
        key, value = unpack(page, (low - 1) * size)
        return first + low - 1, (key, value)

    def _narrow(self, target: int, column: int) -> tuple[int, int, bytes | None]:
        """Return a range of at most one page that has the wanted entry, and the page's bytes if they were read
        already."""
        low, high = 0, self._stored
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        count = _PAGE_BYTES // size
        if high > count and self._last is not None:
            # Entries are roughly evenly spaced, so the first page that is read is usually the right one.
            first = 0 if self.FROM_ZERO[column] else self._at(0)[column]
            guess = high * (target - first) // max(1, self._last[column] - first)
            begin = min(max(0, guess - count // 2), high - count)
            page = self._read(begin, count)
            if begin and unpack(page, 0)[column] > target:
                high = begin
            elif begin + count < high and unpack(page, (count - 1) * size)[column] <= target:
                low = begin + count - 1
            else:
                return begin, begin + count, page
        while high - low > count:
            middle = (low + high) // 2
            if self._at(middle)[column] <= target:
                low = middle
            else:
                high = middle
        return low, high, None

    def entry(self, position: int) -> tuple[int, int]:
        self._open()
        return self._at(position)

    def entries(self) -> list[tuple[int, int]]:
        self._open()
        stored = [(key, value) for key, value in self.ENTRY.iter_unpack(self._read(0, self._stored))]
        return stored + list(zip(self._keys, self._values, strict=True))

    # -- the file

    def _at(self, position: int) -> tuple[int, int]:
        if position >= self._stored:
            return self._keys[position - self._stored], self._values[position - self._stored]
        return self._unpack(self._open(), position)

    def _unpack(self, file: File, position: int) -> tuple[int, int]:
        key, value = self.ENTRY.unpack(self._read_from(file, position, 1))
        return key, value

    def _read(self, position: int, count: int) -> bytes:
        return self._read_from(self._open(), position, count)

    def _read_from(self, file: File, position: int, count: int) -> bytes:
        size = self.ENTRY.size
        data = file.pread(count * size, position * size)
        if len(data) != count * size:
            raise OSError(errno.EIO, "index file is shorter than it was", self.path)
        return data

    def _open(self) -> File:
        file = self._file
        if file is None:
            file = self._disk.open(self.path, create=True)
            try:
                if self._stored < 0:
                    stored = self._count(file)
                    self._last = self._unpack(file, stored - 1) if stored else None
                    self._stored = stored
            except BaseException:
                # The number of entries is still unknown: the next call opens the file again.
                file.close()
                raise
            self._file = file
        return file

    def _count(self, file: File) -> int:
        """Count the real entries of the file: all entries before the first one of zeros."""
        size = self.ENTRY.size
        low, high = 0, file.size() // size
        zeros = bytes(size)
        if high == 0 or file.pread(size, (high - 1) * size) != zeros:
            return high
        while low < high:
            middle = (low + high) // 2
            if file.pread(size, middle * size) == zeros:
                high = middle
            else:
                low = middle + 1
        return low
