"""The newest offset of each key in a part of a log, in memory of a fixed size.

Responsible for how much is remembered and up to which offset. The table's slots and its loops over records are in
`pykbroker_wire.records.dedupe`.

Invariants:
* The memory is one buffer of at most `memory_bytes`. Only the pages where keys have been written use memory.
* The map contains every record with a key from its start offset up to `latest_offset`, or a newer one of the same key.
* A key is stored as 16 bytes of a hash with a seed that no client knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker_log.os_disk.memory import zeros
from pykbroker_wire.records.dedupe import SLOT_SIZE, NewestRecords, put_keys, survivors

if TYPE_CHECKING:
    from pykbroker_wire.primitives import Buffer


class OffsetMap:
    __slots__ = ("_seed", "_table", "entries", "latest_offset", "limit", "slots", "start_offset")

    def __init__(self, memory_bytes: int, load_factor: float, seed: bytes, start_offset: int) -> None:
        """Raises ValueError if the memory is too small for one key."""
        self.slots = memory_bytes // SLOT_SIZE
        #: the highest number of keys: a fuller table makes each lookup slower
        self.limit = int(self.slots * load_factor)
        if self.limit < 1:
            raise ValueError(f"an offset map of {memory_bytes} bytes holds no key at a load factor of {load_factor}")
        self.start_offset = start_offset
        self.latest_offset = start_offset - 1
        self.entries = 0
        self._seed = seed
        self._table = zeros(self.slots * SLOT_SIZE)

    @property
    def utilization(self) -> float:
        return self.entries / self.slots

    def put(self, data: Buffer, count: int, base_offset: int) -> int:
        """Add the keys of a batch of `count` records. Return how many records were read, fewer than `count` if there
        was no room for the next key. Raises InvalidRecord."""
        added, seen, reached = put_keys(
            self._table, self._seed, self.limit - self.entries, data, count, base_offset, self.start_offset
        )
        self.entries += added
        self.reach(reached)
        return seen

    def reach(self, offset: int) -> None:
        """Record that the map is complete up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)

    def survivors(self, data: Buffer, count: int, base_offset: int, *, drop_tombstones: bool) -> NewestRecords:
        """Return the records of a batch that are not superseded. Raises InvalidRecord."""
        return survivors(self._table, self._seed, data, count, base_offset, self.latest_offset, drop_tombstones)
