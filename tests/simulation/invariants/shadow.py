"""A log as in its files, batch by batch. It is read without the log's own code from the disk's memory, so that reading
uses no fault, no cache and no open file of the node.

Responsible for following one replica's log through appends, truncations and restarts. Not responsible for what it may
contain: the other modules check that.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Any, NamedTuple

from pykbroker_log import names
from pykbroker_log.partition_log import PartitionLog

#: base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta, two timestamps, producer id,
#: producer epoch, base sequence, record count
_HEADER = Struct(">qiibIhiqqqhii")
_OVERHEAD = 12
_CONTROL = 0x20


class StoredBatch(NamedTuple):
    """One batch of a log, with its bytes."""

    base: int
    #: the offset after the last one of the batch
    next: int
    epoch: int
    crc: int
    size: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def last_sequence(self) -> int:
        """Return the last sequence; sequences begin again after 2^31 - 1."""
        return (self.base_sequence + self.next - self.base - 1) & 0x7FFF_FFFF

    def __str__(self) -> str:
        return f"{self.base}..{self.next - 1} of epoch {self.epoch} (CRC {self.crc:08x})"

    def is_same(self, other: StoredBatch) -> bool:
        return self.crc == other.crc and self.epoch == other.epoch and self.base == other.base


def parse(data: bytes | bytearray, position: int, end: int) -> StoredBatch | None:
    """Return the batch at `position`, or None if it is not whole."""
    if end - position < _HEADER.size:
        return None
    fields = _HEADER.unpack_from(data, position)
    size = fields[1] + _OVERHEAD
    if position + size > end:
        return None
    base = fields[0]
    return StoredBatch(
        base,
        base + fields[6] + 1,
        fields[2],
        fields[4],
        size,
        fields[5],
        fields[9],
        fields[10],
        fields[11],
        fields[12],
        bytes(data[position : position + size]),
    )


class Changes(NamedTuple):
    """The changes of a log since the last look."""

    #: no longer in the log, or no longer at their offset
    gone: list[StoredBatch]
    added: list[StoredBatch]


class Shadow:
    """One replica's log, which may be closed, opened and moved in the meantime."""

    __slots__ = ("_base", "_position", "_positions", "batches", "end", "log", "start")

    def __init__(self) -> None:
        self.log: PartitionLog | None = None
        self.batches: list[StoredBatch] = []
        #: the log end
        self.end = 0
        #: its start, as far as the files show it
        self.start = 0
        # The place of the next read: the segment's base offset, and the position in its file.
        self._base = -1
        self._position = 0
        # The place of each batch, so that the last one can be read again.
        self._positions: list[tuple[int, int]] = []

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that begins at or after the offset."""
        return bisect_left(self.batches, (offset,))

    def follow(self, log: PartitionLog) -> Changes:
        """Take over the present contents of the log."""
        if log is self.log and log.log_end_offset >= self.end and self._is_where_it_was(log):
            added = self._read(log)
            return Changes([], added)
        return self._read_again(log)

    def _is_where_it_was(self, log: PartitionLog) -> bool:
        """Return True if the last batch that was read is still at its place."""
        if self._base < 0:
            return False
        if not self.batches:
            return bool(log.files.segments) and log.files.segments[0].base_offset == self._base
        base, position = self._positions[-1]
        segment = next((found for found in reversed(log.files.segments) if found.base_offset == base), None)
        if segment is None or segment.size < position + self.batches[-1].size:
            return False
        found = parse(_data_of(segment), position, segment.size)
        return found is not None and found.is_same(self.batches[-1])

    def _read(self, log: PartitionLog) -> list[StoredBatch]:
        added: list[StoredBatch] = []
        active = log.files.active
        segments = (active,) if active.base_offset == self._base else tuple(log.files.segments)
        for segment in segments:
            if segment.base_offset < self._base:
                continue
            if segment.base_offset > self._base:
                self._base, self._position = segment.base_offset, 0
            data = _data_of(segment)
            end = segment.size
            while self._position < end:
                batch = parse(data, self._position, end)
                if batch is None:
                    break
                added.append(batch)
                self._positions.append((self._base, self._position))
                self._position += batch.size
        self.batches += added
        self.end = log.log_end_offset
        return added

    def _read_again(self, log: PartitionLog) -> Changes:
        """Read again from the first segment on, because the log is another object or was cut."""
        before = self.batches
        self.log = log
        self.batches, self._positions = [], []
        self._base = self.start = log.files.segments[0].base_offset
        self._position = 0
        now = self._read(log)
        kept = {batch.base: batch for batch in now}
        known = {batch.base: batch for batch in before}
        # A batch that compaction or retention removed was not replaced by another one.
        gone = [
            batch
            for batch in before
            if batch.base >= self.end or (batch.base in kept and _is_other(batch, kept[batch.base]))
        ]
        added = [batch for batch in now if batch.base not in known or _is_other(batch, known[batch.base])]
        return Changes(gone, added)


def _is_other(one: StoredBatch, other: StoredBatch) -> bool:
    """Return True if they cannot be the same batch, nor one the rest of the other after compaction."""
    return one.epoch != other.epoch or (one.size == other.size and one.crc != other.crc)


def _data_of(segment: Any) -> bytearray:
    file = segment._file
    if file is not None:
        data: bytearray = file._node.data
        return data
    node = segment.disk.tree.find(segment.path(names.LOG))
    return bytearray() if node is None else node.data
