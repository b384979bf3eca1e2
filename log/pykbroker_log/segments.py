"""The segments of a log in order, and the search for an offset or a timestamp in them.

Invariants:
* Base offsets ascend. The last segment is the active one, the only one that grows. An open log has at least one.
* A remembered position is the start of the batch that begins at its offset, or the end of a segment; every operation
  that removes bytes calls `forget`.
* A sealed segment from an earlier run is read only after its end was checked: it may have been cut. Missing records are
  reported once.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pykbroker_log import names
from pykbroker_log.disk import ColdRead
from pykbroker_log.segment import Segment
from pykbroker_log.time_index import TimeIndex
from pykbroker_log.time_search import BatchSearch
from pykbroker_log.txn_index import AbortedTxn
from pykbroker_wire.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, CorruptBatch
from pykbroker_wire.records.walk import MIN_INT64

if TYPE_CHECKING:
    from pykbroker_log.time_search import TimeSearch

logger = logging.getLogger(__name__)

# Positions remembered per log: the ends of the latest reads, where sequential readers continue.
_MAX_POSITIONS = 64
#: Shared by logs from which nothing was read; never changed. A node has thousands of logs.
_NO_POSITIONS: dict[int, tuple[Segment, int]] = {}


class Piece(NamedTuple):
    """A part of a `.log` file of `size` bytes: the batches from `start` on, up to the first batch end at or after
    `end`."""

    path: str
    start: int
    end: int
    size: int


class Segments(list[Segment]):
    __slots__ = ("_positions", "is_gapless")

    def __init__(self, segments: Iterable[Segment] = (), *, is_gapless: bool = False) -> None:
        super().__init__(segments)
        #: each segment ends where the next one begins: the log was never compacted
        self.is_gapless = is_gapless
        self._positions = _NO_POSITIONS

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment to which `offset` belongs."""
        last = len(self) - 1
        if offset >= self[last].base_offset:
            return last
        return max(0, bisect_right(self, offset, key=_base_offset) - 1)

    def reaching_past(self, offset: int, *, inclusive: bool = False) -> list[Segment]:
        """Return the segments with offsets at or after `offset`, always with the active one; if `inclusive`, also the
        segment that ends there."""
        first = 0
        while first + 1 < len(self) and self[first + 1].base_offset < offset + (0 if inclusive else 1):
            first += 1
        return self[first:]

    def exchange(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace the neighbours `old` by `new`, which has the records that are left of them."""
        first = self.index(old[0])
        self[first : first + len(old)] = [new]
        self.forget()

    # -- by offset

    def locate(self, offset: int) -> tuple[Segment, int, int] | None:
        """Return (segment, position, base offset) of the first batch that ends at or after `offset`."""
        known = self._positions.get(offset)
        if known is not None and known[1] < known[0].size:
            return known[0], known[1], offset
        for index in range(self.index_of(offset), len(self)):
            segment = self[index]
            if not segment.end_is_known:
                self._look_at_end(index)
            if offset <= segment.base_offset:
                if segment.size:
                    return segment, 0, segment.base_offset
            else:
                found = segment.find(offset)
                if found is not None:
                    return segment, found[0], found[1]
            # Compaction may have emptied the end of a segment.
        return None

    def _look_at_end(self, index: int) -> None:
        """Check the end of a segment, once, when it is first read. Readers do not get half a batch at its end, because
        they would wait for the rest."""
        segment = self[index]
        if index + 1 < len(self):
            following = self[index + 1].base_offset
            try:
                position, end = segment.whole_end()
            except CorruptBatch:
                # A reader gets the bytes, and finds the damage.
                position, end = segment.size, following
            if position < segment.size or (self.is_gapless and end < following):
                logger.warning(
                    "%s ends at position %d, offset %d: the records from offset %d to %d are missing",
                    segment.path(names.LOG),
                    position,
                    end,
                    end,
                    following - 1,
                )
            segment.size = position
        segment.end_is_known = True

    def limit(self, segment: Segment, upper_offset: int, log_end_offset: int) -> tuple[int, int]:
        """Return (position, offset) up to which a reader with this bound may read in this segment."""
        if segment is self[-1]:
            if upper_offset == log_end_offset:
                return segment.size, upper_offset
        else:
            following = self[self.index_of(segment.base_offset) + 1].base_offset
            if following <= upper_offset:
                return segment.size, following
        known = self._positions.get(upper_offset)
        if known is not None and known[0] is segment:
            return known[1], upper_offset
        found = segment.find(upper_offset)
        position = found[0] if found is not None else segment.size
        self.remember(upper_offset, segment, position)
        return position, upper_offset

    def stretch(self, offset: int, max_bytes: int) -> tuple[int, list[Piece]]:
        """Return the offset at which the batches from `offset` on begin, and pieces with about `max_bytes` of them."""
        found = self.locate(offset)
        if found is None:
            return offset, []
        start, pieces = found[1], []
        for segment in self[self.index_of(found[0].base_offset) :]:
            end = min(segment.size, start + max_bytes)
            if end > start:
                pieces.append(Piece(segment.path(names.LOG), start, end, segment.size))
            max_bytes -= end - start
            if max_bytes <= 0:
                break
            start = 0
        return found[2], pieces

    def bytes_from(self, offset: int) -> int:
        """Return the size in bytes of the batches from `offset` on."""
        found = self.locate(offset)
        if found is None:
            return 0
        behind = self[self.index_of(found[0].base_offset) :]
        return sum(segment.size for segment in behind) - found[1]

    def last_batch(self) -> BatchHeader | None:
        for segment in reversed(self):
            found = segment.last_batch()
            if found is not None:
                return found[1]
        return None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if positions is _NO_POSITIONS:
            positions = self._positions = {}
        positions[offset] = (segment, position)
        if len(positions) > _MAX_POSITIONS:
            del positions[next(iter(positions))]

    def forget(self) -> None:
        self._positions = _NO_POSITIONS

    # -- transactions

    def aborted(
        self, offset: int, segment: Segment, end: int, next_offset: int, log_end_offset: int
    ) -> list[AbortedTxn]:
        """Return the aborted transactions for a reader that got the bytes from `offset` up to the position `end` of
        this segment, where `next_offset` begins.

        There may be a few too many: as in Apache Kafka, the index decides where the bytes end.
        """
        found: list[AbortedTxn] = []
        index = self.index_of(segment.base_offset)
        upper = segment.offset_index.offset_from_position(end)
        if upper < 0:
            upper = log_end_offset if index + 1 == len(self) else self[index + 1].base_offset
        # The index entry is not compared with the batches, because extra transactions do no harm.
        upper = max(upper, next_offset)
        # A marker may come many segments after the records of its transaction.
        for following in range(index, len(self)):
            if self[following].txn_index.collect(offset, upper, found):
                break
        return found

    # -- by time

    def first_at_least(
        self, timestamp: int, start_offset: int, search: TimeSearch | None = None
    ) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record from `start_offset` on that is at least this
        new."""
        self._look_up_timestamps()
        for segment in self:
            if segment.max_timestamp < timestamp:
                continue
            start = max(segment.time_index.offset_before(timestamp), start_offset)
            for position, header in segment.walk(segment.position_for(start)):
                if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                    found = _first_of_batch(segment, position, header, timestamp, start_offset, search)
                    if found is not None:
                        return *found, header.partition_leader_epoch
        return None

    def _look_up_timestamps(self) -> None:
        try:
            for segment in self:
                _ = segment.max_timestamp
        except ColdRead as cold:
            raise self.cold_times(cold) from None

    def cold_times(self, cold: ColdRead) -> ColdRead:
        """Return a ColdRead that loads the timestamps of all segments, when those of one segment are not in memory."""
        return ColdRead(_TimeIndexes(list(self)), cold.offset, cold.length)

    def newest(self, search: TimeSearch | None = None) -> tuple[int, int, int] | None:
        """Return (offset, timestamp, leader epoch) of the first record with the largest timestamp."""
        self._look_up_timestamps()
        segment = max(self, key=lambda segment: segment.max_timestamp)
        newest = segment.max_timestamp
        if newest < 0:
            return None
        for position, header in segment.walk(segment.position_for(segment.max_timestamp_offset)):
            if header.max_timestamp == newest:
                found = _first_of_batch(segment, position, header, newest, header.base_offset, search)
                if found is not None:
                    return *found, header.partition_leader_epoch
        return None


class _TimeIndexes:
    """The ends of the time indexes, which a search for a timestamp reads first."""

    __slots__ = ("_segments",)

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def load(self, _offset: int, _length: int) -> None:
        for segment in self._segments:
            try:
                file = segment.disk.open(segment.path(names.TIME_INDEX))
                try:
                    file.load(max(0, file.size() - TimeIndex.ENTRY.size), TimeIndex.ENTRY.size)
                finally:
                    file.close()
            except FileNotFoundError:
                continue  # retention has deleted it


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _first_of_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start_offset: int,
    search: TimeSearch | None,
) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record of a batch that is at least this new, from an offset on."""
    is_append_time = bool(header.attributes & LOG_APPEND_TIME)
    target = MIN_INT64 if is_append_time else timestamp
    first_delta = max(0, start_offset - header.base_offset)

    def read() -> BatchSearch:
        payload = segment.read_batch(position, header)[HEADER_SIZE:]
        return BatchSearch(header.compression, payload, header.record_count, header.base_timestamp, target, first_delta)

    if search is None:
        found = read().run()
    else:
        found = search.look((header.base_offset, header.crc, target, first_delta), read)
    if found is None:
        return None
    offset_delta, found_timestamp = found
    return header.base_offset + offset_delta, header.max_timestamp if is_append_time else found_timestamp
