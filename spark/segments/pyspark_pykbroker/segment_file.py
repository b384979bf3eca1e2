"""One `.log` file with its indexes: the position of an offset or a time, and the batches from there on.

Responsible for the content of one segment. Not responsible for the list of segments of a log (log_view.py).

Invariants: an index is only a hint: if it is missing, damaged or out of date, a search takes longer but is never wrong.
Bytes that are no batch raise DamagedSegment or UnknownFormat with the file, the position and the offset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pykbroker_log import names
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.time_index import TimeIndex
from pykbroker_log.txn_index import AbortedTxn, TxnIndex
from pykbroker_wire.records.batch import HEADER_SIZE, MAGIC, MIN_BATCH_LENGTH, BatchHeader, verify_crc
from pykbroker_wire.records.compression import CompressionError, TooLarge
from pykbroker_wire.records.record import InvalidRecord, iter_records
from pyspark_pykbroker.faults import DamagedSegment, UnknownFormat
from pyspark_pykbroker.read_only_disk import READ_ONLY, MappedForReading

#: Advice for wrong bytes below the high watermark.
ADVICE = (
    "Read another replica's directory, or start its broker, which repairs the log from the leader; "
    "with other offsets in startingOffsets or endingOffsets the rest can be read."
)


class Replaced(FileNotFoundError):
    """The name leads to another file than before, or to none, because of compaction or retention."""


class SegmentFile:
    """Mapped when its bytes are first needed; from then on it stays readable, even if the broker renames or deletes
    it."""

    def __init__(self, folder: str, base_offset: int, state: str = "") -> None:
        """`state`: the suffix after the names, "" or `.swap`. Raises FileNotFoundError."""
        self.folder = folder
        self.base_offset = base_offset
        self.is_swap = state == names.SWAP
        self.path = self._path(names.LOG, state)
        self._state = state
        self._view: memoryview | None = None
        status = os.stat(self.path)
        #: the size when it was found; an active segment grows
        self.size = status.st_size
        self._inode = (status.st_dev, status.st_ino)

    @property
    def view(self) -> memoryview:
        """The bytes up to `size`. Raises Replaced."""
        if self._view is None:
            mapped = MappedForReading(self.path)
            if mapped.inode != self._inode or mapped.size() < self.size:
                raise Replaced(f"{self.path} has been replaced")
            self._view = mapped.view[: self.size]
        return self._view

    def release(self) -> None:
        """Release the map, if no batch of it is referenced."""
        self._view = None

    def is_there(self) -> bool:
        """Return True if the name still leads to this file."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._inode

    def _path(self, kind: str, state: str = "") -> str:
        return os.path.join(self.folder, names.segment_file(self.base_offset, kind) + state)

    def batches(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each whole batch. Raises DamagedSegment if the file ends inside a batch; the
        caller stops before that, at the high watermark."""
        view, size = self.view, self.size
        while position < size:
            if size - position < HEADER_SIZE:
                raise self.torn(position)
            header = BatchHeader.parse(view, position)
            if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH:
                raise self._no_batch(position, header)
            if header.last_offset_delta < 0 or header.base_offset < self.base_offset:
                raise self._no_batch(position, header)
            if position + header.size_in_bytes > size:
                raise self.torn(position)
            yield position, header
            position += header.size_in_bytes

    def torn(self, position: int) -> DamagedSegment:
        """Return the error for bytes at `position` that are no whole batch."""
        return DamagedSegment(
            f"{self.path} ends inside a batch: {self.size - position} bytes from position {position} on are no whole "
            f"batch, though the high watermark is behind it. A crash has torn the log, or it was copied while it was "
            f"written. {ADVICE}"
        )

    def _no_batch(self, position: int, header: BatchHeader) -> DamagedSegment | UnknownFormat:
        if not any(self.view[position : position + HEADER_SIZE]):
            return DamagedSegment(f"{self.path} has zeros from position {position} on. {ADVICE}")
        if header.magic != MAGIC and header.batch_length >= MIN_BATCH_LENGTH and 0 <= header.magic < 16:
            return UnknownFormat(
                f"{self.path}, position {position}: a batch of record format {header.magic}, this reader knows "
                f"{MAGIC}. A newer Apache Kafka needs a newer pyspark-pykbroker; formats 0 and 1 are from before 0.11 "
                "and can be read through a broker that still knows them."
            )
        return DamagedSegment(
            f"{self.path}, position {position}: no batch begins here (magic {header.magic}, length "
            f"{header.batch_length}, offset {header.base_offset}). {ADVICE}"
        )

    def check(self, position: int, header: BatchHeader) -> None:
        """Raises DamagedSegment if the batch is not the one that was written."""
        if not verify_crc(self.view, position, header):
            raise DamagedSegment(
                f"{self.path}, position {position}: the checksum of the batch with offsets {header.base_offset} to "
                f"{header.last_offset} does not match: bits have changed on the disk. {ADVICE}"
            )

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        return self.view[position : position + header.size_in_bytes]

    # -- finding

    def _offset_index(self) -> OffsetIndex | None:
        path = self._path(names.OFFSET_INDEX, self._state)
        return OffsetIndex(READ_ONLY, path, self.base_offset) if os.path.exists(path) else None

    def position_before(self, offset: int) -> int:
        """Return the start of a batch at or before the first batch that ends at or after `offset`."""
        try:
            index = self._offset_index()
            found = index.before(offset) if index is not None else None
        except OSError:  # renamed in the meantime
            return 0
        return found[1] if found is not None and self._is_batch(*found) else 0

    def boundary_near(self, position: int) -> tuple[int, int] | None:
        """Return (offset, position) where a batch ends shortly before `position`, if the index has an entry there."""
        try:
            index = self._offset_index()
            found = index.at_or_before(position) if index is not None else None
        except OSError:
            return None
        return (found[0] + 1, found[1]) if found is not None and self._is_batch(*found) else None

    def _is_batch(self, last_offset: int, position: int) -> bool:
        """Return True if the index entry matches a batch; damaged entries are not followed."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return False
        header = BatchHeader.parse(self.view, position)
        return header.magic == MAGIC and header.last_offset == last_offset

    def offset_at(self, timestamp: int, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) with a record that is at least as new (ms)."""
        position = max(self.position_before(start), self._position_before_time(timestamp))
        for at, header in self.batches(position):
            if header.base_offset >= end:
                return None
            if header.max_timestamp >= timestamp and header.next_offset > start:
                self.check(at, header)
                for offset, when in self._times(at, header):
                    if when >= timestamp and start <= offset < end:
                        return offset
            if header.next_offset >= end:
                return None
        return None

    def _position_before_time(self, timestamp: int) -> int:
        """Return the start of a batch before which all records are older (ms)."""
        path = self._path(names.TIME_INDEX, self._state)
        try:
            if not os.path.exists(path):
                return 0
            found = TimeIndex(READ_ONLY, path, self.base_offset).floor_entry(timestamp)
        except OSError:
            return 0
        if found is None:
            return 0
        newest, offset = found[0], self.base_offset + found[1]
        position = self.position_before(offset)
        for _, header in self.batches(position):
            if header.last_offset >= offset:
                # Follow only an entry that the log confirms.
                return position if header.base_offset <= offset and header.max_timestamp == newest else 0
        return 0

    def _times(self, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
        try:
            for record in iter_records(self.view, position, header):
                yield record.offset, record.timestamp
        except (InvalidRecord, CompressionError, TooLarge) as error:
            raise DamagedSegment(f"{self.path}, position {position}: {error}. {ADVICE}") from None

    def aborted(self, start: int, end: int, found: list[AbortedTxn]) -> bool:
        """Add the aborted transactions of this segment that overlap with [start, end). Return False if later segments
        may have more."""
        path = self._path(names.TXN_INDEX, self._state)
        index = TxnIndex(READ_ONLY, path)
        if not index.is_sane(self.base_offset):
            raise DamagedSegment(
                f"{path} is no index of aborted transactions: records of aborted transactions cannot be told from "
                "committed ones. Start the broker on this directory, which writes it again, or read uncommitted."
            )
        return index.collect(start, end, found)
