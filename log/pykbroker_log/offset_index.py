"""`.index`: from an offset to a position in the `.log` file at or before it.

An entry is (int32 offset - base offset, int32 position): the LAST offset of the batch that starts at the position
(Kafka's tools report a base offset as a mismatch). There is one entry per `index.interval.bytes` of log.
"""

from __future__ import annotations

import struct

from pykbroker_log.disk import Disk
from pykbroker_log.index import SortedIndex


class OffsetIndex(SortedIndex):
    ENTRY = struct.Struct(">ii")
    KEY_TYPE = "q"
    FROM_ZERO = (True, True)

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset

    def append(self, offset: int, position: int) -> None:
        last = self._last
        key = offset - self.base_offset
        if last is None or key > last[0]:
            self.add(key, position)

    def position_before(self, offset: int) -> int:
        """Return a position from which a forward scan finds the first batch that ends at or after `offset`."""
        found = self.before(offset)
        return found[1] if found is not None else 0

    def before(self, offset: int) -> tuple[int, int] | None:
        """Return the last entry at or before `offset`: (last offset of a batch, its position)."""
        found = self.floor_entry(offset - self.base_offset)
        return (self.base_offset + found[0], found[1]) if found is not None else None

    def at_or_before(self, position: int) -> tuple[int, int] | None:
        """Return (last offset, position) of the last indexed batch that starts at or before `position`."""
        found = self.floor_entry(position, by_value=True)
        return (self.base_offset + found[0], found[1]) if found is not None else None

    def offset_from_position(self, position: int) -> int:
        """Return the last offset of the first indexed batch that starts at or after `position`; -1 if there is none."""
        found = self.floor(position - 1, by_value=True) + 1
        return self.base_offset + self.entry(found)[0] if found < len(self) else -1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or after `offset`."""
        self.keep(self.floor(offset - self.base_offset - 1) + 1)

    def is_full(self, max_bytes: int) -> bool:
        return len(self) >= max_bytes // self.ENTRY.size
