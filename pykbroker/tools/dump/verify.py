"""`pykbroker logs verify`: check log directories, partition folders and single files.

Responsible for every error that could stop a reader: checksums, offsets and leader epochs of batches, and whether
indexes, producer snapshots and checkpoints agree with their log. Nothing is changed. A directory in use may be checked,
but files that are written during the check can look incomplete.

The checksum of a batch does not cover its offset and leader epoch. They are checked in another way: offsets follow each
other, except where the cleaner has removed records (`cleaner-offset-checkpoint`), and `leader-epoch-checkpoint` has the
first offset of each epoch.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pykbroker.tools.dump.file_batches import Found, NotABatch, batches
from pykbroker.tools.dump.index_files import index_entries, time_entries
from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
)
from pykbroker_log.disk import Disk, FileReader, read_file
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.producers import CorruptProducerSnapshot, decode_snapshot, marker_of
from pykbroker_log.time_index import TimeIndex
from pykbroker_log.txn_index import ENTRY as TXN_ENTRY
from pykbroker_raft.checkpoint import CorruptMetadataSnapshot
from pykbroker_raft.checkpoint import decode as decode_metadata_snapshot
from pykbroker_raft.checkpoint import parse_name as parse_snapshot_name
from pykbroker_raft.election_state import FILE as QUORUM_STATE
from pykbroker_raft.election_state import CorruptQuorumState, ElectionState
from pykbroker_wire.records.batch import HEADER_SIZE, BatchHeader, verify_crc
from pykbroker_wire.records.compression import Codec, CompressionError, decompress
from pykbroker_wire.records.record import InvalidRecord
from pykbroker_wire.records.walk import walk

_OFFSET_FILES = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_START_OFFSETS, names.CLEANER_OFFSETS)
_MAX_RELATIVE_OFFSET = 2**31 - 1


@dataclass(slots=True, frozen=True)
class Finding:
    path: str
    position: int | None
    """In bytes; None if the finding is about the whole file."""
    text: str

    def __str__(self) -> str:
        where = "" if self.position is None else f" position {self.position}:"
        return f"{self.path}:{where} {self.text}"


class _Log:
    """The state of one partition while its segments are read in order."""

    def __init__(self, cleaned_to: int) -> None:
        #: below this offset the cleaner may have removed records
        self.cleaned_to = cleaned_to
        self.next_offset = -1
        self.epoch = -1
        self.epochs: list[tuple[int, int]] = []
        #: from producer snapshots: last offset of a batch -> the expected batch, and the snapshots that contain it
        self.expected: dict[int, list[tuple[str, int, int, int]]] = {}


class _Indexes:
    """The entries of the indexes of one segment. An entry is removed when the log confirms it."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.timestamps: dict[int, int] = {}
        self.aborted: dict[int, int] = {}


class DirectoryVerifier:
    """Call `verify` for any number of paths, then `summary`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files = self._segments = self._batches = self._bytes = self._findings = 0

    def verify(self, path: str) -> Iterator[Finding]:
        for finding in self._verify(path.rstrip("/") or "/"):
            self._findings += 1
            yield finding

    def summary(self) -> str:
        found = "nothing is wrong" if not self._findings else f"{self._findings} findings"
        return f"{self._files} files, {self._segments} segments, {self._batches} batches, {self._bytes} bytes: {found}"

    def _verify(self, path: str) -> Iterator[Finding]:
        disk = self._disk
        if not disk.exists(path):
            yield Finding(path, None, "does not exist")
        elif not disk.is_dir(path):
            yield from self._file(path)
        elif self._is_partition(path):
            yield from self._partition(path, {})
        else:
            yield from self._directory(path)

    def _is_partition(self, path: str) -> bool:
        found = self._disk.list(path)
        return names.META_PROPERTIES not in found and any(names.parse_segment_file(name) for name in found)

    def _read(self, path: str) -> bytes:
        self._files += 1
        data = read_file(self._disk, path)
        self._bytes += len(data)
        return data

    # -- directories

    def _directory(self, path: str) -> Iterator[Finding]:
        found = set(self._disk.list(path))
        if names.META_PROPERTIES not in found:
            yield Finding(path, None, f"neither a log directory ({names.META_PROPERTIES}) nor a partition's folder")
            return
        try:
            decode_properties(self._read(f"{path}/{names.META_PROPERTIES}"))["cluster.id"]
        except (MalformedFile, KeyError) as error:
            yield Finding(f"{path}/{names.META_PROPERTIES}", None, f"malformed: {error}")
        if names.BOOTSTRAP_CHECKPOINT in found:
            yield from self._snapshot(f"{path}/{names.BOOTSTRAP_CHECKPOINT}")
        ends: dict[tuple[str, int], int] = {}
        for name in sorted(found):
            folder = names.parse_partition_dir(name)
            if folder is not None and folder.mark != names.DELETE_DIR and self._disk.is_dir(f"{path}/{name}"):
                yield from self._partition(f"{path}/{name}", ends)
        for name in _OFFSET_FILES:
            if name in found:
                yield from self._offsets(f"{path}/{name}", ends)

    def _offsets(self, path: str, ends: dict[tuple[str, int], int]) -> Iterator[Finding]:
        try:
            offsets = decode_offsets(self._read(path))
        except MalformedFile as error:
            yield Finding(path, None, f"malformed: {error}")
            return
        for (topic, partition), offset in offsets.items():
            end = ends.get((topic, partition), offset)
            if not 0 <= offset <= end:
                yield Finding(path, None, f"{topic}-{partition} at {offset}, where the log ends at {end}")

    # -- partitions

    def _partition(self, path: str, ends: dict[tuple[str, int], int]) -> Iterator[Finding]:
        found = self._disk.list(path)
        parsed = [name for name in map(names.parse_segment_file, found) if name is not None and not name.state]
        log = _Log(self._cleaned_to(path))
        yield from self._side_files(path, found, log)
        for name in parsed:
            if name.kind == names.SNAPSHOT:
                yield from self._producers(path, name.base_offset, log)
        bases = sorted(name.base_offset for name in parsed if name.kind == names.LOG)
        log.next_offset = bases[0] if bases else 0
        for base in bases:
            yield from self._segment(path, base, log)
        for name in parsed:
            if name.kind not in (names.LOG, names.SNAPSHOT) and name.base_offset not in bases:
                file = names.segment_file(name.base_offset, name.kind)
                yield Finding(f"{path}/{file}", None, "there is no log with this base offset")
        first = max(bases[0] if bases else 0, log.cleaned_to)
        for offset, claims in sorted(log.expected.items()):
            if first <= offset < log.next_offset:
                for file, producer_id, _, _ in claims:
                    yield Finding(file, None, f"producer {producer_id} has no batch that ends at offset {offset}")
        folder = names.parse_partition_dir(os.path.basename(path))
        if folder is not None and not folder.mark:
            ends[folder.topic, folder.partition] = log.next_offset

    def _cleaned_to(self, path: str) -> int:
        """Return the offset below which the cleaner may have removed records. The checkpoint of the cleaner moves only
        at the end of a cleaning, and an interrupted cleaning may have changed any segment but the last."""
        folder = names.parse_partition_dir(os.path.basename(path))
        file = f"{os.path.dirname(path) or '.'}/{names.CLEANER_OFFSETS}"
        if folder is None or not self._disk.exists(file):
            return 0
        try:
            cleaned = decode_offsets(read_file(self._disk, file)).get((folder.topic, folder.partition))
        except MalformedFile:
            return 0  # reported where the directory's own files are read
        if cleaned is None:
            return 0
        parsed = map(names.parse_segment_file, self._disk.list(path))
        return max(cleaned, *(name.base_offset for name in parsed if name is not None and name.kind == names.LOG), 0)

    def _side_files(self, path: str, found: list[str], log: _Log) -> Iterator[Finding]:
        for name in found:
            file = f"{path}/{name}"
            try:
                if name == names.LEADER_EPOCHS:
                    epochs = decode_epochs(self._read(file))
                    if epochs != sorted(epochs) or [start for _, start in epochs] != sorted(
                        start for _, start in epochs
                    ):
                        raise MalformedFile("epochs or offsets do not rise")
                    log.epochs = epochs
                elif name == names.PARTITION_METADATA:
                    decode_partition_metadata(self._read(file))
                elif name == QUORUM_STATE:
                    ElectionState.from_bytes(self._read(file))
                elif parse_snapshot_name(name) is not None and name.endswith(".checkpoint"):
                    yield from self._snapshot(file)
            except (MalformedFile, CorruptQuorumState) as error:
                yield Finding(file, None, f"malformed: {error}")

    def _producers(self, path: str, offset: int, log: _Log) -> Iterator[Finding]:
        file = f"{path}/{names.segment_file(offset, names.SNAPSHOT)}"
        try:
            entries = list(decode_snapshot(self._read(file)))
        except CorruptProducerSnapshot as error:
            yield Finding(file, None, f"malformed: {error}")
            return
        for entry in entries:
            if entry.last_offset >= offset:
                yield Finding(file, None, f"producer {entry.producer_id} at offset {entry.last_offset}")
            elif entry.last_offset >= 0:
                claim = (file, entry.producer_id, entry.epoch, entry.last_sequence)
                log.expected.setdefault(entry.last_offset, []).append(claim)

    # -- files

    def _file(self, path: str) -> Iterator[Finding]:
        name = os.path.basename(path)
        parsed = names.parse_segment_file(name)
        folder = os.path.dirname(path) or "."
        if parsed is None or parsed.state:
            if name in _OFFSET_FILES:
                yield from self._offsets(path, {})
            elif name.endswith(".checkpoint"):
                yield from self._snapshot(path)
            else:
                yield from self._side_files(folder, [name], _Log(0))
            return
        if parsed.kind == names.SNAPSHOT:
            yield from self._producers(folder, parsed.base_offset, _Log(0))
            return
        log = _Log(self._cleaned_to(folder))
        if self._disk.exists(f"{folder}/{names.LEADER_EPOCHS}"):
            yield from self._side_files(folder, [names.LEADER_EPOCHS], log)
        log.next_offset = parsed.base_offset
        yield from self._segment(folder, parsed.base_offset, log)

    def _snapshot(self, path: str) -> Iterator[Finding]:
        """Check a snapshot of the metadata, or the metadata that a directory was formatted with."""
        log = _Log(0)
        log.next_offset = 0
        damage = list(self._batches_of(path, self._disk.open(path).reader(), 0, log, _Indexes()))
        yield from damage
        if not damage:
            try:
                decode_metadata_snapshot(read_file(self._disk, path))
            except CorruptMetadataSnapshot as error:
                yield Finding(path, None, f"not a whole snapshot: {error}")

    # -- segments

    def _segment(self, folder: str, base: int, log: _Log) -> Iterator[Finding]:
        self._segments += 1
        path = f"{folder}/{names.segment_file(base, names.LOG)}"
        if not self._disk.exists(path):
            yield Finding(path, None, "does not exist")
            return
        if base < log.next_offset:
            yield Finding(path, None, f"begins at {base}, the segment before it ends at {log.next_offset}")
            log.next_offset = base
        indexes = _Indexes()
        yield from self._load_indexes(folder, base, indexes)
        yield from self._batches_of(path, self._disk.open(path).reader(), base, log, indexes)
        for position, offset in sorted(indexes.positions.items()):
            file = f"{folder}/{names.segment_file(base, names.OFFSET_INDEX)}"
            yield Finding(file, None, f"no batch that ends at offset {offset} begins at position {position}")
        for offset, timestamp in sorted(indexes.timestamps.items()):
            file = f"{folder}/{names.segment_file(base, names.TIME_INDEX)}"
            yield Finding(file, None, f"no batch with timestamp {timestamp} ends at offset {offset}")
        for offset, producer_id in sorted(indexes.aborted.items()):
            file = f"{folder}/{names.segment_file(base, names.TXN_INDEX)}"
            yield Finding(file, None, f"producer {producer_id} has aborted nothing at offset {offset}")

    def _load_indexes(self, folder: str, base: int, indexes: _Indexes) -> Iterator[Finding]:
        path = f"{folder}/{names.segment_file(base, names.OFFSET_INDEX)}"
        if self._disk.exists(path):
            data = self._read(path)
            entries = _written(index_entries(data, base), (base, 0))
            yield from _in_order(path, data, OffsetIndex.ENTRY.size, entries)
            yield from _nothing_behind(path, data, OffsetIndex.ENTRY.size, entries)
            indexes.positions = {position: offset for offset, position in entries}
        path = f"{folder}/{names.segment_file(base, names.TIME_INDEX)}"
        if self._disk.exists(path):
            data = self._read(path)
            times = _written(time_entries(data, base), (0, base))
            yield from _in_order(path, data, TimeIndex.ENTRY.size, times)
            yield from _nothing_behind(path, data, TimeIndex.ENTRY.size, times)
            indexes.timestamps = {offset: timestamp for timestamp, offset in times}
        path = f"{folder}/{names.segment_file(base, names.TXN_INDEX)}"
        if self._disk.exists(path):
            data = self._read(path)
            if len(data) % TXN_ENTRY.size:
                yield Finding(path, len(data) - len(data) % TXN_ENTRY.size, "the last entry is cut off")
            for position in range(0, len(data) - TXN_ENTRY.size + 1, TXN_ENTRY.size):
                version, producer_id, first, last, stable = TXN_ENTRY.unpack_from(data, position)
                if version != 0 or not first <= last or stable > last + 1 or last in indexes.aborted:
                    yield Finding(path, position, "not an entry")
                indexes.aborted[last] = producer_id

    def _batches_of(self, path: str, file: FileReader, base: int, log: _Log, indexes: _Indexes) -> Iterator[Finding]:
        self._files += 1
        size, position = file.size(), 0
        self._bytes += size
        try:
            for found in batches(file):
                self._batches += 1
                yield from self._batch(path, found, base, log, indexes)
                position = found.position + len(found.data)
        except NotABatch as error:
            yield Finding(
                path, error.position, f"no batch ({error.why}); {size - error.position} bytes are out of reach"
            )
            return
        if position < size:
            yield Finding(path, position, f"{size - position} bytes at the end are no whole batch")

    def _batch(self, path: str, found: Found, base: int, log: _Log, indexes: _Indexes) -> Iterator[Finding]:
        header, position = found.header, found.position
        is_valid = verify_crc(found.data, 0, header)
        if not is_valid:
            yield Finding(path, position, "the checksum does not match")
        else:
            why = _unreadable(found)
            if why:
                yield Finding(path, position, why)
        yield from _check_offsets(path, position, header, base, log)
        yield from _check_epoch(path, position, header, log)
        last = header.last_offset
        indexed = indexes.positions.pop(position, None)
        if indexed is not None and indexed != last:
            yield Finding(path, position, f"the offset index has {indexed} for this batch, which ends at {last}")
        timestamp = indexes.timestamps.pop(last, None)
        if timestamp is not None and timestamp != header.max_timestamp:
            yield Finding(path, position, f"the time index has {timestamp} for this batch of {header.max_timestamp}")
        if is_valid and last in indexes.aborted and marker_of(header, found.data) is not None:
            aborted = indexes.aborted.pop(last)
            if aborted != header.producer_id:
                yield Finding(path, position, "the transaction index has another producer for this marker")
        for file, producer_id, epoch, sequence in log.expected.pop(last, ()):
            # A transaction marker after this batch may have raised the epoch.
            if producer_id != header.producer_id or sequence != header.last_sequence or epoch < header.producer_epoch:
                yield Finding(file, None, f"producer {producer_id} did not write the batch that ends at offset {last}")


def _written(entries: list[tuple[int, int]], zeros: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the entries. A file that has only zeros seems to have one entry, which is left out."""
    return [] if entries == [zeros] else entries


def _in_order(path: str, data: bytes, size: int, entries: list[tuple[int, int]]) -> Iterator[Finding]:
    if len(data) % size:
        yield Finding(path, len(data) - len(data) % size, "the last entry is cut off")
    for index, (before, after) in enumerate(pairwise(entries), 1):
        if before[0] >= after[0] or before[1] >= after[1]:
            yield Finding(path, index * size, f"entry {after} behind {before}")


def _nothing_behind(path: str, data: bytes, size: int, entries: list[tuple[int, int]]) -> Iterator[Finding]:
    """Check that a preallocated file has only zeros after its entries."""
    end = len(entries) * size
    if any(data[end : len(data) - len(data) % size]):
        yield Finding(path, end, "an entry of the segment's first offset behind others")


def _check_offsets(path: str, position: int, header: BatchHeader, base: int, log: _Log) -> Iterator[Finding]:
    first, last = header.base_offset, header.last_offset
    if first < log.next_offset:
        yield Finding(path, position, f"offset {first} again, the batch before it ends at {log.next_offset - 1}")
    elif first > max(log.next_offset, log.cleaned_to):
        yield Finding(path, position, f"the offsets {max(log.next_offset, log.cleaned_to)} to {first - 1} are missing")
    if not 0 <= last - base <= _MAX_RELATIVE_OFFSET or last < first:
        yield Finding(path, position, f"the offsets {first} to {last} do not belong into this segment")
        return
    log.next_offset = last + 1


def _check_epoch(path: str, position: int, header: BatchHeader, log: _Log) -> Iterator[Finding]:
    epoch = header.partition_leader_epoch
    if epoch < log.epoch:
        yield Finding(path, position, f"leader epoch {epoch} behind {log.epoch}")
    index = bisect_right(log.epochs, header.base_offset, key=lambda entry: entry[1]) - 1
    if index >= 0 and log.epochs[index][0] != epoch:
        known = log.epochs[index][0]
        yield Finding(path, position, f"leader epoch {epoch}, where {names.LEADER_EPOCHS} has {known}")
    else:
        log.epoch = max(log.epoch, epoch)


def _unreadable(found: Found) -> str | None:
    """Return the reason why the records of a batch with the right checksum cannot be read, or None if they can."""
    header = found.header
    payload = found.data[HEADER_SIZE:]
    try:
        if header.compression is not Codec.NONE:
            payload = memoryview(decompress(header.compression, payload))
        end, count, *_ = walk(bytes(payload), 0, 0, header.record_count)
    except (InvalidRecord, CompressionError, ValueError) as error:
        return f"its records cannot be read: {error}"
    if (end, count) != (len(payload), header.record_count):
        return f"{count} of {header.record_count} records end at byte {end} of {len(payload)}"
    return None
