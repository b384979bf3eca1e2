"""The records in a folder `__cluster_metadata-0` that no node uses, without any change to the folder.

Responsible for reading the latest snapshot and the log after it: the values, and the voters. Not responsible for which
records are committed (a reader may see more than the quorum has agreed on), nor for repairs (metadata_storage.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from pykbroker_log import names
from pykbroker_log.disk import Disk, read_file
from pykbroker_raft import batches, checkpoint
from pykbroker_raft.log_view import OffsetAndEpoch
from pykbroker_raft.voters import VoterSet
from pykbroker_wire.primitives import DecodeError


class UnreadableRecords(ValueError):
    """The folder is damaged."""


@dataclass(slots=True)
class StoredRecords:
    """`voters` is None if the log names none: then the configuration of each node does."""

    voters: VoterSet | None
    values: list[bytes]
    end_offset: int = 0


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The files from which a start reads: the latest snapshot, and by their base offsets the segments after it."""

    folder: str
    snapshot: OffsetAndEpoch | None
    segments: tuple[int, ...]

    @property
    def paths(self) -> list[str]:
        snapshots = [] if self.snapshot is None else [self.snapshot_path(self.snapshot)]
        return snapshots + [self.segment_path(base) for base in self.segments]

    def snapshot_path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self.folder}/{checkpoint.file_name(snapshot)}"

    def segment_path(self, base: int) -> str:
        return f"{self.folder}/{names.segment_file(base, names.LOG)}"


def find_files(disk: Disk, folder: str) -> StoredFiles:
    """Return the files with the records of a folder. Raises OSError."""
    listed = disk.list(folder)
    snapshots = [parsed.id for name in listed if (parsed := checkpoint.parse_name(name)) and not parsed.suffix]
    latest = max(snapshots, default=None)
    bases = names.log_segments(listed)
    start = 0 if latest is None else latest.offset
    covered = sum(1 for following in bases[1:] if following <= start)
    return StoredFiles(folder, latest, tuple(bases[covered:]))


def read_records(disk: Disk, folder: str) -> StoredRecords:
    """Read the records of a folder. A torn end is left out. Raises UnreadableRecords, OSError."""
    files = find_files(disk, folder)
    found = StoredRecords(None, [])
    start = 0
    try:
        if files.snapshot is not None:
            snapshot = checkpoint.decode(read_file(disk, files.snapshot_path(files.snapshot)))
            found.voters = snapshot.voters
            found.values += [value for batch in snapshot.values for value in batch]
            start = found.end_offset = files.snapshot.offset
        if files.segments and files.segments[0] > start:
            raise UnreadableRecords(
                f"{folder}: the log starts at offset {files.segments[0]}, and no snapshot is before it"
            )
        for base, following in zip_longest(files.segments, files.segments[1:]):
            data = read_file(disk, files.segment_path(base))
            end = base
            for batch in batches.intact(data):
                end = batch.next_offset
                if batch.base_offset >= start:
                    found.end_offset = end
                    _take(found, data, batch)
            if following is not None and end != following:
                raise UnreadableRecords(f"{folder}: the segment at offset {base} is damaged at offset {end}")
    except checkpoint.CorruptMetadataSnapshot as error:
        raise UnreadableRecords(f"{folder}: its latest snapshot is damaged: {error}") from error
    except DecodeError as error:
        raise UnreadableRecords(f"{folder}: {error}") from error
    return found


def _take(found: StoredRecords, data: bytes, batch: batches.Batch) -> None:
    found.values += batches.values(data, batch)
    if batch.is_control:
        for _, record in batches.control_of(data, batch):
            if record.type is batches.ControlType.KRAFT_VOTERS:
                found.voters = VoterSet.from_record(record.message)
