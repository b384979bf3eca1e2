"""One `.log` file and its indexes: append, find, read boundaries, truncate.

Responsible for positions and offsets within the segment. Not responsible for what may be appended or read
(partition_log.py), nor for which bytes a scan after a crash accepts as a batch (scan.py).

Invariants:
* `size` is the number of bytes that were written and may be read; bytes after it (a failed write) belong to no batch.
* Batches lie back to back in the order of their offsets; `next_offset` follows the last one.
* An index entry points at a batch that starts below `size`.
* A segment that was not used yet has no open file and no index: `file` and the indexes are created at the first use.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from pykbroker_log import names
from pykbroker_log.disk import Buffer, Disk, File
from pykbroker_log.index import MAX_PENDING_ENTRIES
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.scan import BatchVisit, Scanned, scan
from pykbroker_log.time_index import TimeIndex
from pykbroker_log.txn_index import TxnIndex
from pykbroker_wire.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    CorruptBatch,
)

logger = logging.getLogger(__name__)

_WALK_BYTES = 8 * 1024  # one pread of headers covers the bytes between two index entries
MAX_RELATIVE_OFFSET = (1 << 31) - 1
_UNKNOWN = -2
# The beginning of a batch header, as in HEADER, and of the rest only the last offset delta.
_SPAN = Struct(">qiib6xi")


class BatchMark(NamedTuple):
    """One batch of an append."""

    size: int
    last_offset: int
    max_timestamp: int


class Segment:
    """A segment, which is opened (or created) at once, or at the first use if its `size` is passed."""

    __slots__ = (
        "_bytes_since_index",
        "_file",
        "_first_timestamp",
        "_folder",
        "_index_checked",
        "_index_full",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_preallocated",
        "_time_index",
        "_txn_index",
        "_written_back",
        "base_offset",
        "created_ms",
        "disk",
        "end_is_known",
        "gone",
        "index_interval_bytes",
        "size",
        "state",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        now_ms: int,
        size: int | None = None,
        state: str = "",
    ) -> None:
        #: the suffix of its files' names: "" in a log, `.cleaned` while compaction writes it, `.swap` until it replaces
        self.state = state
        #: not needed any longer, even after a crash: compaction has replaced it, or the log starts after it
        self.gone = False
        self.disk = disk
        self._folder = folder
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = now_ms
        #: its last batch is whole and was checked in this run; see Segments.locate
        self.end_is_known = size is None
        self._index_checked = size is None
        # Files and indexes that were never used are not opened.
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        if size is None:
            self._file = disk.open(self.path(names.LOG), create=True)
            size = self._file.size()
        self.size = size
        self._bytes_since_index = 0
        self._preallocated = False
        # The device was asked to write everything before this position; the kernel writes the bytes of earlier runs.
        self._written_back = size
        self._index_full: tuple[int, bool] | None = None
        # Looked up at the first use: most segments of a log never need them.
        self._first_timestamp = _UNKNOWN
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset

    # -- opened at the first use

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.disk.open(self.path(names.LOG))
        return file

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        return index if index is not None else self._make_indexes()[0]

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        return index if index is not None else self._make_indexes()[1]

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            index = self._txn_index = TxnIndex(self.disk, self.path(names.TXN_INDEX))
        return index

    def _make_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_index = self._offset_index = OffsetIndex(self.disk, self.path(names.OFFSET_INDEX), self.base_offset)
        time_index = self._time_index = TimeIndex(self.disk, self.path(names.TIME_INDEX), self.base_offset)
        if not self._index_checked:
            try:
                if not self._has_sane_index():
                    self._rebuild_indexes()
            except BaseException:
                # The indexes are not in memory, or not readable: the next use checks them again.
                self._offset_index = self._time_index = None
                self._index_checked = False
                raise
            self._index_checked = True
        return offset_index, time_index

    def _has_sane_index(self) -> bool:
        """Return True if the last entry is plausible: positions from a damaged file must not be used."""
        last = self.offset_index.last()
        return last is None or (last[0] > 0 and 0 <= last[1] < max(self.size, 1))

    def _rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batch headers. They end at a damaged header; a walk that reaches it raises."""
        logger.warning("%s is damaged, so it is rebuilt, and the time index too", self.path(names.OFFSET_INDEX))
        self.file.load(0, self.size)  # rare, and not to be interrupted by a ColdRead
        self._empty_indexes()
        offsets = self.offsets_from(self.base_offset)
        with contextlib.suppress(CorruptBatch):
            for position, header in self.walk(0):
                if header.base_offset not in offsets or header.last_offset not in offsets:
                    break
                self._account(position, header.size_in_bytes, header.last_offset, header.max_timestamp)
                offsets = self.offsets_from(header.last_offset + 1)
        self.seal()

    def _empty_indexes(self) -> None:
        """Empty the offset and the time index, and the values from them; the caller adds the batches again."""
        self._index_checked = True
        self._index_full = None
        self.offset_index.keep(0)
        self.time_index.keep(0)
        self._bytes_since_index = 0
        self._first_timestamp = _UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = -1, self.base_offset

    def __repr__(self) -> str:
        # No file is read for this text.
        largest = "" if self._max_timestamp == _UNKNOWN else f", largestRecordTimestamp={self._max_timestamp}"
        return f"LogSegment(baseOffset={self.base_offset}, size={self.size}{largest})"

    def path(self, suffix: str) -> str:
        return f"{self._folder}/{names.segment_file(self.base_offset, suffix)}{self.state}"

    def paths(self) -> list[str]:
        return [path for path in map(self.path, (names.LOG, *names.INDEXES)) if self.disk.exists(path)]

    def is_shorter(self) -> OSError:
        """The error to raise when bytes below `size` are not in the file."""
        return OSError(errno.EIO, "segment is shorter than it was", self.path(names.LOG))

    # -- timestamps

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp == _UNKNOWN:
            if self.size and self.time_index.last() is None and self.first_timestamp >= 0:
                # Sealing writes at least one entry, unless the records have no timestamps.
                self._rebuild_indexes()
            else:
                self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry()
        return self._max_timestamp

    def largest_timestamp(self) -> int:
        """Return the time that retention uses, in ms: the records' largest timestamp, or else the file's last
        change."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.disk.modified_ms(self.path(names.LOG))

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch in which the largest timestamp was first reached."""
        _ = self.max_timestamp
        return self._max_timestamp_offset

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which `segment.ms` counts; -1 if unknown."""
        if self._first_timestamp == _UNKNOWN:
            if self.size == 0:
                return -1
            self._first_timestamp = self.header_at(0).max_timestamp
        return self._first_timestamp

    # -- append

    def offsets_from(self, offset: int) -> range:
        """Return the offsets from `offset` on at which a batch of this segment may begin."""
        return range(offset, self.base_offset + MAX_RELATIVE_OFFSET + 1)

    def can_hold(self, last_offset: int) -> bool:
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append_batch(self, data: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. If this raises, nothing of it counts."""
        # This runs once for each produced batch, so it uses a property only if the attribute under it is not set yet.
        offset_index, file = self._offset_index, self._file
        if offset_index is None:
            offset_index = self.offset_index
        if offset_index.pending >= MAX_PENDING_ENTRIES:
            # Write the indexes before the data: if the disk refuses, nothing has been appended yet.
            self.write_indexes()
        position = self.size
        if file is None:
            file = self.file
        file.pwritev((data,), position)
        if position == 0:
            self._first_timestamp = max_timestamp
        self._account(position, size, last_offset, max_timestamp)
        self.size = position + size

    def append(self, buffers: Sequence[Buffer], byte_count: int, marks: Sequence[tuple[int, int, int]]) -> None:
        """Write batches at the end. If this raises, nothing of it counts."""
        if self.offset_index.pending >= MAX_PENDING_ENTRIES:
            # Write the indexes before the data: if the disk refuses, nothing has been appended yet.
            self.write_indexes()
        position = self.size
        self.file.pwritev(buffers, position)
        if position == 0:
            self._first_timestamp = marks[0][2]
        for size, last_offset, max_timestamp in marks:
            self._account(position, size, last_offset, max_timestamp)
            position += size
        self.size = position

    def _account(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        newest = self._max_timestamp
        if newest == _UNKNOWN:
            newest = self.max_timestamp
        if max_timestamp > newest:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index = 0
            self._index_full = None
        self._bytes_since_index += size

    def indexes_full(self, max_bytes: int) -> bool:
        # Called for every append, but the result changes only with an entry (or the configuration).
        if self._index_full is None or self._index_full[0] != max_bytes:
            is_full = self.offset_index.is_full(max_bytes) or self.time_index.is_full(max_bytes)
            self._index_full = (max_bytes, is_full)
        return self._index_full[1]

    def write_indexes(self) -> None:
        self.offset_index.write_pending()
        self.time_index.write_pending()

    def seal(self) -> None:
        """End appends: the time index gets the largest timestamp, which retention uses, as its last entry."""
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.write_indexes()
        self._ensure_index_files()
        if self._preallocated:
            self.file.truncate(self.size)
            self._preallocated = False

    def preallocate(self, byte_count: int) -> None:
        """Give the file its final length at the start; the bytes after `size` are zeros until the segment is sealed."""
        self.file.truncate(byte_count)
        self._preallocated = True

    def _ensure_index_files(self) -> None:
        # Apache Kafka recovers a segment whose index file is missing; an empty one has to exist.
        len(self.offset_index)
        len(self.time_index)

    def fsync(self) -> None:
        self.file.fsync()

    def take_unwritten(self, least: int) -> tuple[int, int] | None:
        """Return (position, size) of the bytes since the last call, or None if they are fewer than `least`."""
        start = self._written_back
        if self.size - start < least:
            return None
        self._written_back = self.size
        return start, self.size - start

    def unsynced_files(self, *, sealed: bool) -> list[File]:
        """Return the files that a flush has to fsync. Indexes that only sealing completes are left out until then."""
        files = [self.file]
        if sealed:
            files += [self.offset_index.file, self.time_index.file]
        # Sealing adds nothing to the transaction index.
        aborted = None if self._txn_index is None else self._txn_index.take_unsynced()
        if aborted is not None:
            files.append(aborted)
        return files

    def fsync_indexes(self) -> None:
        self.offset_index.fsync()
        self.time_index.fsync()
        self.txn_index.fsync()

    # -- find

    def header_at(self, position: int) -> BatchHeader:
        return BatchHeader.parse(self.file.pread(HEADER_SIZE, position))

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of the batches from `position` on; an incomplete one ends the walk silently. Raises
        CorruptBatch, OSError, ColdRead."""
        make = BatchHeader._make
        for at, _, fields in self._headers(HEADER, position, self.size if end is None else end):
            yield at, make(fields)

    def _headers(self, layout: Struct, position: int, end: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield (position, end, fields) of the batches: like `walk`, for callers that need fewer fields (_SPAN)."""
        chunk = b""
        chunk_start = position
        step = _WALK_BYTES
        unpack = layout.unpack_from
        while position + HEADER_SIZE <= end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk_start, at = position, 0
                chunk = self.file.pread(min(step, end - position), position)
                if len(chunk) < HEADER_SIZE:
                    raise self.is_shorter()
            fields = unpack(chunk, at)
            length = fields[1]
            if fields[3] != MAGIC or length < MIN_BATCH_LENGTH:
                raise CorruptBatch(f"no batch at position {position} of {self.path(names.LOG)}")
            after = position + LOG_OVERHEAD + length
            if after > end:
                return
            yield position, after, fields
            # Between large batches a chunk has only one header, so no more than that is read.
            step = HEADER_SIZE if length > _WALK_BYTES else _WALK_BYTES
            position = after

    def position_for(self, offset: int) -> int:
        """Return a position from which a walk finds the first batch that ends at or after `offset`."""
        return self._indexed(self.offset_index.before, offset)

    def position_at_or_before(self, position: int) -> int:
        """Return the start of the last indexed batch that starts at or before `position`; 0 if there is none."""
        return self._indexed(self.offset_index.at_or_before, position)

    def _indexed(self, look_up: Callable[[int], tuple[int, int] | None], key: int) -> int:
        """Return the start of the batch that the index names. An index that disagrees with the batches is rebuilt."""
        entry = look_up(key)
        if entry is None:
            return 0
        last_offset, position = entry
        header = self.file.pread(_SPAN.size, position)
        if len(header) == _SPAN.size:
            base_offset, _, _, magic, last_delta = _SPAN.unpack(header)
            if magic == MAGIC and base_offset + last_delta == last_offset:
                return position
        self._rebuild_indexes()
        entry = look_up(key)
        return entry[1] if entry is not None else 0

    def find(self, offset: int) -> tuple[int, int] | None:
        """Return (position, base offset) of the first batch that ends at or after `offset`."""
        begin = self.position_for(offset)
        for position, _, (base_offset, _, _, _, last_delta) in self._headers(_SPAN, begin, self.size):
            if base_offset + last_delta >= offset:
                return position, base_offset
        return None

    def boundary(self, start: int, limit: int) -> tuple[int, int] | None:
        """Return (position, next offset) of the last batch end at or below `limit`, after `start`, or None."""
        last: tuple[int, int] | None = None
        begin = max(start, self.position_at_or_before(limit))
        for position, after, (base_offset, _, _, _, last_delta) in self._headers(_SPAN, begin, self.size):
            if after > limit:
                # The index may lead to the batch that crosses the limit: then the result ends where that batch starts.
                return last or ((position, base_offset) if position > start else None)
            last = after, base_offset + last_delta + 1
        return last

    def end_before(self, offset: int) -> int:
        """Return the end offset of the last batch that ends before `offset`: the log end after a cut there."""
        end = self.base_offset
        begin = self.position_for(offset - 1)
        for _, _, (base_offset, _, _, _, last_delta) in self._headers(_SPAN, begin, self.size):
            if base_offset + last_delta >= offset:
                break
            end = base_offset + last_delta + 1
        return end

    def last_batch(self) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the last whole batch, found from the last index entry; None if there is none."""
        last: tuple[int, BatchHeader] | None = None
        for found in self.walk(self.position_for(self.base_offset + MAX_RELATIVE_OFFSET)):
            last = found
        return last

    def whole_end(self) -> tuple[int, int]:
        """Return the end (position, offset) of the last whole batch. Raises CorruptBatch, OSError, ColdRead."""
        if not self.size:
            return 0, self.base_offset  # avoids creating the index of an empty segment
        position, offset = self.position_for(self.base_offset + MAX_RELATIVE_OFFSET), self.base_offset
        for at, header in self.walk(position):
            position, offset = at + header.size_in_bytes, header.next_offset
        return position, offset

    def has_whole_index(self) -> bool:
        """Return True if this sealed segment's indexes are certainly as sealing left them; else it is scanned."""
        if self.size == 0:
            return True
        last = self.offset_index.last()
        start = last[1] if last else 0
        timestamp, timestamp_offset = self.time_index.last_entry()
        confirmed = False
        since = 0
        try:
            for position, header in self.walk(start):
                if position == start and last is not None and header.last_offset != self.base_offset + last[0]:
                    return False
                if since > self.index_interval_bytes or header.max_timestamp > timestamp:
                    return False
                if (header.max_timestamp, header.last_offset) == (timestamp, timestamp_offset):
                    confirmed = True
                since += header.size_in_bytes
        except (CorruptBatch, OSError):
            return False
        # If nothing confirms the index, it lost its end, or the largest timestamp came early: only a scan can decide.
        return confirmed

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        data = self.file.pread(header.size_in_bytes, position)
        if len(data) != header.size_in_bytes:
            raise self.is_shorter()
        return data

    # -- change

    def truncate_to(self, offset: int) -> bool:
        """Cut off the first batch that reaches `offset`, and everything after it. Return True if there was one."""
        found = self.find(offset)
        if found is None:
            return False
        position, _ = found
        # The index first: an entry beyond the end of the log would mislead, a missing one only makes a walk longer.
        self._index_full = None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        self._bytes_since_index = 0
        self._written_back = min(self._written_back, position)
        if position == 0:
            self._first_timestamp = _UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry()
        for _, header in self.walk(self.position_for(self._max_timestamp_offset)):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp = header.max_timestamp
                self._max_timestamp_offset = header.last_offset
        return True

    def reset(self) -> None:
        """Empty the files, whatever they contain."""
        self._index_full = None
        self.file.truncate(0)
        self.offset_index.keep(0)
        self.time_index.keep(0)
        self.txn_index.reset()
        self.size = self._written_back = 0

    def drop_tail(self, next_offset: int) -> None:
        """Remove what a failed write may have left after the log's end, which is `next_offset`."""
        self.file.truncate(self.size)
        self.txn_index.drop_tail(next_offset)

    def recover(self, visit: BatchVisit, *, is_gapless: bool = False) -> Generator[int, None, Scanned]:
        """Check every batch up to the first bytes that are no batch, and rebuild the indexes; yields the number of
        bytes that were examined. The caller decides about the rest, and then calls `end_at`. `visit` adds the entries
        of the transaction index, because they depend on the producers. See scan.py."""
        self._empty_indexes()
        self.txn_index.reset()
        found = yield from scan(self, visit, is_gapless=is_gapless)
        self._max_timestamp, self._max_timestamp_offset = found.max_timestamp, found.max_timestamp_offset
        self._bytes_since_index = found.bytes_since_index
        self.size = found.size
        return found

    def end_at(self, position: int) -> None:
        """Cut off everything after `position`; called after `recover`."""
        if self.file.size() > position:
            self.file.truncate(position)
        self.size = position
        self.end_is_known = True
        self.seal()

    def begin_rebuild(self) -> None:
        """Call it before `recover` if no later flush covers the segment. Until `end_rebuild` the time index has another
        name. It shows the next start that the indexes are not whole, because half an index looks like a whole one."""
        self._index_checked = True
        self.time_index.close()
        path = self.path(names.TIME_INDEX)
        if self.disk.exists(path):
            self.disk.unlink(path)
        self.disk.fsync_dir(self._folder)
        self.time_index.path = path + names.UNFINISHED

    def end_rebuild(self) -> None:
        """Make the indexes durable, and give the time index its name back."""
        self.fsync_indexes()
        self.disk.fsync_dir(self._folder)
        self.time_index.close()
        path = self.path(names.TIME_INDEX)
        self.disk.rename(path + names.UNFINISHED, path)
        self.time_index.path = path

    def move_to(self, folder: str) -> None:
        """Follow a rename of the folder; the segment has been closed."""
        self._folder = folder
        self._follow_names()

    def rename(self, state: str) -> None:
        """Give all files another state. They are opened again at the next use."""
        paths = self.paths()
        self.close()
        before, self.state = self.state, state
        self._follow_names()
        for path in paths:
            self.disk.rename(path, path.removesuffix(before) + state)

    def _follow_names(self) -> None:
        self._file = None
        indexes = (self._offset_index, self._time_index, self._txn_index)
        for index, suffix in zip(indexes, names.INDEXES, strict=True):
            if index is not None:
                index.path = self.path(suffix)

    def remove(self) -> None:
        """Remove the segment's files."""
        self.close()
        for path in self.paths():
            self.disk.unlink(path)

    def close(self) -> None:
        for made in (self._file, self._offset_index, self._time_index, self._txn_index):
            if made is not None:
                made.close()
