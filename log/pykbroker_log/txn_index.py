"""`.txnindex`: the aborted transactions whose markers are in this segment. A read-committed reader gets those that
overlap with its read, and leaves out their records.

An entry is (int16 version 0, int64 producer id, int64 first offset, int64 offset of the marker, int64 last stable
offset as of the marker). The file exists only if there is (or was) an entry.

Responsible for the entries of one segment. Not responsible for which transactions were aborted (producers.py), nor for
the search across segments (segments.py): a transaction's marker may come many segments after its records.

Invariants:
* Marker offsets strictly increase from entry to entry; last stable offsets never decrease.
* The entry is in the file before the marker is in the log. After a crash the scan of the segment removes entries above
  the log's end.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

from pykbroker_log.disk import Disk, File

_VERSION = 0
ENTRY = struct.Struct(">hqqqq")
_SIZE = ENTRY.size
# The number of entries in one read.
_PAGE_ENTRIES = 4096 // _SIZE


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """Every transaction before it is decided once the marker is replicated."""


class TxnIndex:
    """The index of one segment; the file is opened at the first use."""

    __slots__ = ("_count", "_disk", "_file", "_last_offset", "_unsynced", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._file: File | None = None
        self._count = -1
        self._last_offset = -1
        self._unsynced = False

    def __len__(self) -> int:
        if self._count < 0:
            self._look()
        return self._count

    # -- change

    def append(self, aborted: AbortedTxn) -> None:
        """Add an entry. If this raises, the entry does not count."""
        count = len(self)
        assert aborted.last_offset > self._last_offset, (self.path, aborted, self._last_offset)
        self._open().pwritev((ENTRY.pack(_VERSION, *aborted),), count * _SIZE)
        self._count = count + 1
        self._last_offset = aborted.last_offset
        # Set after the write, because a flush at the same time may have missed the entry.
        self._unsynced = True

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction whose marker is at or after `offset`."""
        if len(self) and self._last_offset >= offset:
            self._keep(self._first_at_least(offset))

    def drop_tail(self, log_end_offset: int) -> None:
        """Remove the entry, or the half of an entry, for a marker that is not in the log."""
        if self._file is not None:
            self._keep(self._first_at_least(log_end_offset) if len(self) else 0)

    def reset(self) -> None:
        """Remove all entries, whatever the file contains."""
        self._count, self._last_offset = 0, -1
        if self._disk.exists(self.path):
            self._keep(0)

    def _keep(self, count: int) -> None:
        self._open().truncate(count * _SIZE)
        self._unsynced = True
        self._count = count
        self._last_offset = self._entry(count - 1).last_offset if count else -1

    def take_unsynced(self) -> File | None:
        """Return the file if it has changed since the last call, else None; the caller fsyncs it."""
        if not self._unsynced:
            return None
        self._unsynced = False
        return self._open()

    def fsync(self) -> None:
        if self._unsynced:
            # Cleared before the call: an entry that is written during it is for the next fsync.
            self._unsynced = False
            try:
                self._open().fsync()
            except OSError:
                self._unsynced = True
                raise

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- find

    def collect(self, start: int, end: int, found: list[AbortedTxn]) -> bool:
        """Add the transactions that overlap with the offsets [start, end). Return False if the next segment may have
        more."""
        if not len(self) or self._last_offset < start:
            return False
        position = self._first_at_least(start)
        while position < self._count:
            for aborted in self._read(position, min(_PAGE_ENTRIES, self._count - position)):
                if aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return True
            position += _PAGE_ENTRIES
        return False

    def entries(self) -> list[AbortedTxn]:
        return self._read(0, len(self)) if len(self) else []

    def is_sane(self, base_offset: int) -> bool:
        """Return True if the file is one that `append` can have written."""
        if not self._disk.exists(self.path):
            return True
        file = self._open()
        data = file.pread(file.size(), 0)
        if len(data) % _SIZE:
            return False
        last = base_offset - 1
        for version, _, first_offset, last_offset, _ in ENTRY.iter_unpack(data):
            if version != _VERSION or last_offset <= last or first_offset > last_offset:
                return False
            last = last_offset
        return True

    def _first_at_least(self, offset: int) -> int:
        """Return the position of the first entry whose marker is at or after `offset`."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    # -- the file

    def _entry(self, position: int) -> AbortedTxn:
        return self._read(position, 1)[0]

    def _read(self, position: int, count: int) -> list[AbortedTxn]:
        data = self._open().pread(count * _SIZE, position * _SIZE)
        if len(data) != count * _SIZE:
            raise OSError(errno.EIO, "transaction index is shorter than it was", self.path)
        return [AbortedTxn._make(fields[1:]) for fields in ENTRY.iter_unpack(data)]

    def _look(self) -> None:
        if self._disk.exists(self.path):
            count = self._open().size() // _SIZE
            # Set both or none: a read may be interrupted.
            self._last_offset = self._entry(count - 1).last_offset if count else -1
            self._count = count
        else:
            self._count = 0

    def _open(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path, create=True)
        return file
