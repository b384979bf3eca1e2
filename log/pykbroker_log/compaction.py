"""Compaction: the newest record of each key stays (Apache Kafka's LogCleaner, KIP-534).

A worker process makes two passes over the log. The first reads the part that was never cleaned, and puts the newest
offset of each key into a map of fixed size, until the map is full. The second copies all segments up to the end of the
map without superseded records, and joins neighbours that become small. A reported copy is whole and durable in
`.cleaned` files. `replacement.py` makes it part of the log, and `dirty_segments.py` decides which part of a log may be
cleaned.

Rules:
* The newest record of each key stays, and so does any record beyond the end of the map. Before that end a record
  without a key goes.
* A tombstone stays until its batch's delete horizon, which the first cleaning writes into the batch.
* A record of an aborted transaction goes. A marker stays as long as a record of its transaction is there, and then
  until its horizon.
* A batch without records stays if it holds a producer's last sequence, or the last offset of what was cleaned.

Invariants:
* Offsets, sequences and a batch's range never change. A batch that loses no record and needs no new horizon is copied
  as it is.
* Every record that is written was read from a batch with a right checksum: damage never gets a new checksum.
* Source files are only read. A kill leaves only `.cleaned` files, which the next cleaning or start removes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pykbroker_log import names
from pykbroker_log.cleaned_transactions import CleanedTransactions
from pykbroker_log.disk import Buffer, Disk
from pykbroker_log.jumps import NO_JUMPS, Jumps
from pykbroker_log.log_config import MAX_INT64, LogConfig
from pykbroker_log.offset_map import OffsetMap
from pykbroker_log.segment import MAX_RELATIVE_OFFSET, BatchMark, Segment
from pykbroker_log.txn_index import AbortedTxn, TxnIndex
from pykbroker_wire.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    seal,
    verify_crc,
)
from pykbroker_wire.records.compression import CompressionError, TooLarge, compress, decompress
from pykbroker_wire.records.dedupe import rebase
from pykbroker_wire.records.record import InvalidRecord, wrap_int64

_WRONG_RECORDS = (InvalidRecord, CorruptBatch, CompressionError, TooLarge)
_KEPT_ATTRIBUTES = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


class Uncleanable(Exception):
    """Records in the log make a cleaning impossible, now and later. The message names the file and the position."""


@dataclass(slots=True, frozen=True)
class CleanerMemory:
    """Limits of the memory that one cleaning uses."""

    map_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 256 << 10


class LastRecord(NamedTuple):
    """The place of the last sequence of a producer that has not expired."""

    data_offset: int
    """-1 if its last batch is a marker."""
    epoch: int


class SegmentSource(NamedTuple):
    base_offset: int
    size: int


@dataclass(slots=True, frozen=True)
class CleaningJob:
    """The input of a worker for one cleaning."""

    folder: str
    sources: tuple[SegmentSource, ...]
    """The segments up to `first_uncleanable_offset`, from the log's first on."""
    later: tuple[int, ...]
    """Base offsets of the segments after the sources: a marker there may decide a transaction of the sources."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    producers: Mapping[int, LastRecord]
    config: LogConfig
    memory: CleanerMemory
    seed: bytes
    now_ms: int
    jumps: Jumps = NO_JUMPS


@dataclass(slots=True)
class CleanerStats:
    """Counts of what a cleaning has read and written."""

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    """Records without a key."""
    buffer_utilization: float = 0.0


@dataclass(slots=True, frozen=True)
class MapComplete:
    """The result of the first pass."""

    end_offset: int


@dataclass(slots=True, frozen=True)
class CleanedSegment:
    """`.cleaned` files that can take the place of some neighbouring segments."""

    base_offset: int
    size: int
    sources: tuple[SegmentSource, ...]


@dataclass(slots=True, frozen=True)
class CleaningResult:
    end_offset: int
    """Exclusive; less than `first_uncleanable_offset` if the map was full before it."""
    stats: CleanerStats


Part: TypeAlias = int | MapComplete | CleanedSegment


def clean(disk: Disk, cleaning: CleaningJob) -> Generator[Part, None, CleaningResult]:
    """Clean a log; a job (see pykbroker.runtime.workers). Yields the bytes read and written, and each result when it is
    ready. Raises OSError, Uncleanable."""
    return (yield from _Cleaner(disk, cleaning).run())


class _Cleaner:
    def __init__(self, disk: Disk, cleaning: CleaningJob) -> None:
        self._disk = disk
        self._cleaning = cleaning
        self._stats = CleanerStats()
        memory = cleaning.memory
        self._map = OffsetMap(memory.map_bytes, memory.load_factor, cleaning.seed, cleaning.first_dirty_offset)
        horizon = cleaning.now_ms + cleaning.config.delete_retention_ms
        self._new_horizon_ms = min(horizon, MAX_INT64)

    def run(self) -> Generator[Part, None, CleaningResult]:
        _remove_cleaned(self._disk, self._cleaning.folder)
        aborted = self._aborted()
        yield from self._build_map(aborted)
        end_offset = self._map.latest_offset + 1
        yield MapComplete(end_offset)
        transactions = CleanedTransactions(aborted)
        sources = [source for source in self._cleaning.sources if source.base_offset < end_offset]
        sizes = [self._sizes(source) for source in sources]
        for count in group(sizes, self._cleaning.config, self._cleaning.first_uncleanable_offset):
            yield from self._clean_group(sources[:count], transactions)
            del sources[:count]
        self._stats.buffer_utilization = self._map.utilization
        return CleaningResult(end_offset, self._stats)

    def _aborted(self) -> list[AbortedTxn]:
        """Return the aborted transactions that begin in the part to be cleaned; their markers may come later."""
        found: list[AbortedTxn] = []
        bases = [source.base_offset for source in self._cleaning.sources]
        for base in [*bases, *self._cleaning.later]:
            index = TxnIndex(self._disk, _path(self._cleaning.folder, base, names.TXN_INDEX))
            found += [txn for txn in index.entries() if txn.first_offset < self._cleaning.first_uncleanable_offset]
            index.close()
        return found

    def _open(self, source: SegmentSource) -> Segment:
        cleaning = self._cleaning
        return Segment(
            self._disk,
            cleaning.folder,
            source.base_offset,
            index_interval_bytes=cleaning.config.index_interval_bytes,
            now_ms=cleaning.now_ms,
            size=source.size,
        )

    def _sizes(self, source: SegmentSource) -> SegmentSizes:
        segment = self._open(source)
        indexes = segment.offset_index, segment.time_index
        sizes = SegmentSizes(*source, *(len(index) * index.ENTRY.size for index in indexes))
        segment.close()
        return sizes

    # -- first pass

    def _build_map(self, aborted: Sequence[AbortedTxn]) -> Generator[int, None, None]:
        cleaning, offsets = self._cleaning, self._map
        start = cleaning.first_dirty_offset
        transactions = CleanedTransactions([txn for txn in aborted if txn.last_offset >= start])
        bases = [source.base_offset for source in cleaning.sources[1:]]
        ends = [*bases, cleaning.first_uncleanable_offset]
        for source, end in zip(cleaning.sources, ends, strict=True):
            if end > start:
                segment = self._open(source)
                is_full = yield from self._map_segment(segment, transactions)
                segment.close()
                if is_full:
                    return
                # An earlier cleaning removed the offsets that are missing at the segment's end.
                offsets.reach(end - 1)

    def _map_segment(self, segment: Segment, transactions: CleanedTransactions) -> Generator[int, None, bool]:
        """Return True if the map is full."""
        offsets, stats = self._map, self._stats
        position = segment.offset_index.position_before(offsets.start_offset)
        for chunk in _read(segment, position, self._cleaning.memory.io_buffer_bytes):
            for at, header in chunk.batches:
                count = seen = header.record_count
                try:
                    if header.attributes & CONTROL:
                        transactions.is_unneeded(header, _bytes(chunk, at, header))
                    elif not transactions.is_aborted(header) and header.last_offset >= offsets.start_offset:
                        seen = offsets.put(_records(chunk, at, header), count, header.base_offset)
                except _WRONG_RECORDS as error:
                    raise _damaged(segment, chunk.position + at, error) from error
                stats.map_messages_read += seen
                if seen < count:
                    return True
                offsets.reach(header.last_offset)
            stats.map_bytes_read += chunk.size
            yield chunk.size
        return False

    # -- second pass

    def _clean_group(
        self, sources: Sequence[SegmentSource], transactions: CleanedTransactions
    ) -> Generator[int | CleanedSegment, None, None]:
        cleaning = self._cleaning
        cleaned = Segment(
            self._disk,
            cleaning.folder,
            sources[0].base_offset,
            index_interval_bytes=cleaning.config.index_interval_bytes,
            now_ms=cleaning.now_ms,
            state=names.CLEANED,
        )
        try:
            is_changed = len(sources) > 1
            for source in sources:
                segment = self._open(source)
                is_changed |= yield from self._clean_into(cleaned, segment, transactions)
                segment.close()
            if not is_changed:
                cleaned.remove()
                return
            cleaned.seal()
            cleaned.fsync()
            cleaned.fsync_indexes()
            # Also make the names durable: if a crash removed one of the four files, the next start could not notice it.
            self._disk.fsync_dir(cleaning.folder)
        except BaseException:
            cleaned.remove()
            raise
        cleaned.close()
        yield CleanedSegment(cleaned.base_offset, cleaned.size, tuple(sources))

    def _clean_into(
        self, cleaned: Segment, segment: Segment, transactions: CleanedTransactions
    ) -> Generator[int, None, bool]:
        """Return True if anything of the source is gone or different."""
        stats = self._stats
        is_changed = False
        for chunk in _read(segment, 0, self._cleaning.memory.io_buffer_bytes):
            output = _Output(chunk.data)
            for at, header in chunk.batches:
                try:
                    kept = self._retain(chunk, at, header, transactions)
                except _WRONG_RECORDS as error:
                    raise _damaged(segment, chunk.position + at, error) from error
                if kept is None:
                    output.copy(at, header)
                else:
                    is_changed = True
                    if kept:
                        output.write(kept)
            for aborted in transactions.kept:
                cleaned.txn_index.append(aborted)
            transactions.kept.clear()
            if output.marks:
                cleaned.append(output.buffers(), output.size, output.marks)
            stats.bytes_read += chunk.size
            stats.messages_read += sum(header.record_count for _, header in chunk.batches)
            stats.bytes_written += output.size
            stats.messages_written += output.messages
            yield chunk.size + output.size
        return is_changed

    def _retain(self, chunk: _Chunk, at: int, header: BatchHeader, transactions: CleanedTransactions) -> bytes | None:
        """Return the batch as it is to be written: b"" if it goes, None if it stays unchanged."""
        count = header.record_count
        if header.attributes & CONTROL:
            is_unneeded = transactions.is_unneeded(header, _bytes(chunk, at, header))
            if is_unneeded and count and not header.has_delete_horizon:
                max_delta = header.max_timestamp - header.base_timestamp
                return self._rebuild(header, _records(chunk, at, header), count, 0, max_delta, needs_horizon=True)
            goes = is_unneeded and (count == 0 or self._is_past_horizon(header))
            if not goes:
                return None
        elif not transactions.is_aborted(header) and count:
            return self._retain_records(_records(chunk, at, header), header)
        if not self._must_stay(header):
            return b""
        return _emptied(header) if count else None

    def _retain_records(self, records: Buffer, header: BatchHeader) -> bytes | None:
        count = header.record_count
        runs, kept, tombstones, keyless, first_delta, max_delta = self._map.survivors(
            records, count, header.base_offset, drop_tombstones=self._is_past_horizon(header)
        )
        self._stats.invalid_messages += keyless
        if not kept:
            return _emptied(header) if self._must_stay(header) else b""
        needs_horizon = tombstones > 0 and not header.has_delete_horizon
        if kept == count and not needs_horizon:
            return None
        view = memoryview(records)
        payload = b"".join([view[start:end] for start, end in runs])
        return self._rebuild(header, payload, kept, first_delta, max_delta, needs_horizon=needs_horizon)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        if not header.has_delete_horizon:
            return False
        # The horizon is the time of the cleaning that wrote it plus delete.retention.ms.
        cleaning, retention_ms = self._cleaning, self._cleaning.config.delete_retention_ms
        return cleaning.jumps.age_ms(cleaning.now_ms, header.base_timestamp - retention_ms) >= retention_ms

    def _must_stay(self, header: BatchHeader) -> bool:
        """Return True if the batch stays even without records. It holds its producer's last sequence (or epoch, if the
        last batch is a marker), or the last offset of what is being cleaned."""
        if header.next_offset == self._cleaning.first_uncleanable_offset:
            return True
        last = self._cleaning.producers.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == last.epoch

    def _rebuild(
        self,
        header: BatchHeader,
        payload: Buffer,
        count: int,
        first_delta: int,
        max_delta: int,
        *,
        needs_horizon: bool,
    ) -> bytes:
        """Build a batch of the records in `payload`. If it has a delete horizon, the base timestamp is that horizon."""
        attributes = header.attributes & (_KEPT_ATTRIBUTES | CODEC_MASK)
        if header.has_delete_horizon or needs_horizon:
            attributes |= DELETE_HORIZON
            base_timestamp = header.base_timestamp if header.has_delete_horizon else self._new_horizon_ms
        else:
            base_timestamp = wrap_int64(header.base_timestamp + first_delta)
        max_timestamp = wrap_int64(header.base_timestamp + max_delta)
        if header.attributes & LOG_APPEND_TIME:
            # With LogAppendTime the timestamps of single records do not count.
            max_timestamp = header.max_timestamp
        elif base_timestamp != header.base_timestamp:
            payload = rebase(payload, count, wrap_int64(header.base_timestamp - base_timestamp), False)
        codec = attributes & CODEC_MASK
        if codec:
            payload = compress(codec, payload)
        return _seal(header, payload, count, attributes, base_timestamp, max_timestamp)


# -- batches ----------------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    position: int
    data: Buffer
    size: int
    """The size of the whole batches in the data."""
    batches: list[tuple[int, BatchHeader]]
    """Position in the data, and header."""


def _read(segment: Segment, position: int, buffer_bytes: int) -> Iterator[_Chunk]:
    """Yield whole batches with right checksums in chunks of `buffer_bytes`; a larger batch gets a larger chunk. Raises
    OSError, Uncleanable."""
    unpack, make = HEADER.unpack_from, BatchHeader._make
    least = max(buffer_bytes, HEADER_SIZE)
    wanted = least
    reader = segment.file.reader()
    while position < segment.size:
        data = reader.pread(min(wanted, segment.size - position), position)
        if len(data) < min(wanted, segment.size - position):
            raise segment.is_shorter()
        batches: list[tuple[int, BatchHeader]] = []
        at, wanted = 0, least
        while at + HEADER_SIZE <= len(data):
            header = make(unpack(data, at))
            if header.magic != MAGIC or header.batch_length < MIN_BATCH_LENGTH or header.record_count < 0:
                raise _damaged(segment, position + at, "no batch")
            after = at + LOG_OVERHEAD + header.batch_length
            if after > len(data):
                if position + after > segment.size:
                    raise _damaged(segment, position + at, "a batch is cut off")
                if not batches:
                    wanted = after
                break
            if not verify_crc(data, at, header):
                raise _damaged(segment, position + at, "the checksum does not match")
            batches.append((at, header))
            at = after
        if batches:
            yield _Chunk(position, data, at, batches)
        elif len(data) < HEADER_SIZE:
            raise _damaged(segment, position, "a header is cut off")
        position += at
    if reader.size() < segment.size:
        # If the file has become shorter, a memory map returns zeros from its end to the end of a page. Then the copied
        # bytes may not be batches.
        raise segment.is_shorter()


def _damaged(segment: Segment, position: int, what: object) -> Uncleanable | OSError:
    if segment.file.size() < segment.size:
        # A memory map returns zeros from the end of the file to the end of a page.
        return segment.is_shorter()
    return Uncleanable(f"{segment.path(names.LOG)} at position {position}: {what}")


class _Output:
    """The output for one chunk: unchanged batches, with neighbours in one piece, and rebuilt batches between them."""

    __slots__ = ("_end", "_parts", "_start", "_view", "marks", "messages", "size")

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self._parts: list[Buffer] = []
        self._start = self._end = 0
        self.marks: list[BatchMark] = []
        self.size = 0
        self.messages = 0

    def copy(self, at: int, header: BatchHeader) -> None:
        if at != self._end:
            self._end_piece()
            self._start = at
        self._end = at + header.size_in_bytes
        self._count(header)

    def write(self, batch: bytes) -> None:
        self._end_piece()
        self._parts.append(batch)
        self._count(BatchHeader.parse(batch))

    def _count(self, header: BatchHeader) -> None:
        size = header.size_in_bytes
        self.marks.append(BatchMark(size, header.last_offset, header.max_timestamp))
        self.size += size
        self.messages += header.record_count

    def _end_piece(self) -> None:
        if self._end > self._start:
            self._parts.append(self._view[self._start : self._end])
        self._start = self._end

    def buffers(self) -> list[Buffer]:
        self._end_piece()
        return self._parts


def _bytes(chunk: _Chunk, at: int, header: BatchHeader) -> memoryview:
    return memoryview(chunk.data)[at : at + header.size_in_bytes]


def _records(chunk: _Chunk, at: int, header: BatchHeader) -> Buffer:
    """Return the records of a batch, decompressed."""
    payload = memoryview(chunk.data)[at + HEADER_SIZE : at + header.size_in_bytes]
    codec = header.compression
    return decompress(codec, payload) if codec else payload


def _emptied(header: BatchHeader) -> bytes:
    return _seal(header, b"", 0, header.attributes & _KEPT_ATTRIBUTES, NO_TIMESTAMP, header.max_timestamp)


def _seal(
    header: BatchHeader, payload: Buffer, count: int, attributes: int, base_timestamp: int, max_timestamp: int
) -> bytes:
    return seal(
        payload,
        record_count=count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


# -- segments ---------------------------------------------------------------------------------------------------------


class SegmentSizes(NamedTuple):
    base_offset: int
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def group(segments: Sequence[SegmentSizes], config: LogConfig, end_offset: int) -> list[int]:
    """Return the sizes of groups of neighbouring segments, in order; each group is copied into one segment. Even if no
    record can be removed, a group's bytes, index bytes and offsets stay within the limits of one segment."""
    counts: list[int] = []
    total = SegmentSizes(0, 0, 0, 0)
    for index, segment in enumerate(segments):
        next_offset = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        more = SegmentSizes(
            total.base_offset,
            total.size + segment.size,
            total.offset_index_bytes + segment.offset_index_bytes,
            total.time_index_bytes + segment.time_index_bytes,
        )
        if (
            counts
            and more.size <= config.segment_bytes
            and more.offset_index_bytes <= config.segment_index_bytes
            and more.time_index_bytes <= config.segment_index_bytes
            and (segment.size == 0 or next_offset - 1 - total.base_offset <= MAX_RELATIVE_OFFSET)
        ):
            counts[-1] += 1
            total = more
        else:
            counts.append(1)
            total = segment
    return counts


def _path(folder: str, base_offset: int, suffix: str) -> str:
    return f"{folder}/{names.segment_file(base_offset, suffix)}"


def _remove_cleaned(disk: Disk, folder: str) -> None:
    """Remove the files of a cleaning that was killed."""
    for name in disk.list(folder):
        found = names.parse_segment_file(name)
        if found is not None and found.state == names.CLEANED:
            disk.unlink(f"{folder}/{name}")
