"""`.timeindex`: from a timestamp to an offset at or before the first record that is at least as new.

An entry is (int64 largest timestamp so far, int32 offset - base offset). The offset is the last one of the batch in
which that timestamp was first reached. Timestamps and offsets both increase from entry to entry; an entry that would
not increase both is left out.
"""

from __future__ import annotations

import struct

from pykbroker_log.disk import Disk
from pykbroker_log.index import SortedIndex


class TimeIndex(SortedIndex):
    ENTRY = struct.Struct(">qi")
    KEY_TYPE = "q"
    FROM_ZERO = (False, True)

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset

    def append(self, timestamp: int, offset: int) -> None:
        last = self.last()
        if timestamp < 0:
            return
        if last is None or timestamp > last[0]:
            self.add(timestamp, offset - self.base_offset)

    def last_entry(self) -> tuple[int, int]:
        """Return (timestamp, offset); (-1, base offset) if there is no entry."""
        last = self.last()
        return (last[0], self.base_offset + last[1]) if last else (-1, self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """Return an offset from which a forward scan finds the first record that is at least this new."""
        found = self.floor_entry(timestamp)
        return self.base_offset + (found[1] if found is not None else 0)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or after `offset`."""
        self.keep(self.floor(offset - self.base_offset - 1, by_value=True) + 1)

    def is_full(self, max_bytes: int) -> bool:
        # One place is reserved for the entry that is added when the segment is sealed.
        return len(self) >= max_bytes // self.ENTRY.size - 1
