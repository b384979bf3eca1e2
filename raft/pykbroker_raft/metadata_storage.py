"""The metadata partition on disk: the log, `quorum-state`, the snapshots. Kafka's names and bytes, and one own note.

Responsible for executing a `Ready` on the disk, and for the state from which a `RaftNode` starts: the log, its voters,
the vote. Synchronous: the driver decides what runs outside the event loop. Invariants:
* quorum-state and snapshots appear whole or not at all (written to another name, fsynced, renamed, the folder fsynced);
* a log that starts above 0 has a snapshot that covers the missing records;
* opening never cuts off records that were durable (intact.py has the exceptions and the errors);
* every disk error is a `StorageError`.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from pykbroker_log.cut_guard import DamagedLog
from pykbroker_log.deletion import delete_files
from pykbroker_log.disk import Disk, read_file, write_atomic
from pykbroker_log.log_config import AppendOrigin, LogConfig, StorageError, is_full
from pykbroker_log.partition_log import InconsistentTopicId, PartitionLog
from pykbroker_raft import batches, checkpoint, intact, rpc
from pykbroker_raft.election_state import FILE as QUORUM_STATE
from pykbroker_raft.election_state import CorruptQuorumState, ElectionState
from pykbroker_raft.flushed_note import MARK, FlushedNote, read_note
from pykbroker_raft.intact import DisagreeingVoters, LostMetadata, MissingSnapshot
from pykbroker_raft.log_view import LogView, OffsetAndEpoch
from pykbroker_raft.partial_snapshot import PartialSnapshot
from pykbroker_raft.ready import SnapshotChunk
from pykbroker_raft.reserve import Reserve
from pykbroker_raft.voters import VoterHistory, VoterSet
from pykbroker_wire.records.batch import iter_batches

DIRECTORY = f"{rpc.TOPIC}-{rpc.PARTITION}"
BOOTSTRAP_VOTERS = OffsetAndEpoch(0, 0)
_SCAN_BYTES = 4 * 1024 * 1024
# A smaller segment is not worth ending at a snapshot: scanning it takes about 100 ms at most.
_ROLL_BYTES = 1024 * 1024

T = TypeVar("T")
logger = logging.getLogger(__name__)


class SnapshotDropped(Exception):
    """The disk has no room for a snapshot that is being fetched. The fetched part was dropped, and is fetched again."""


#: errors of the first check of a folder; after one of them no node can start from the folder
UNUSABLE = (
    StorageError,
    InconsistentTopicId,
    LostMetadata,
    MissingSnapshot,
    DisagreeingVoters,
    checkpoint.CorruptMetadataSnapshot,
    CorruptQuorumState,
)


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Kafka's metadata.log.* and metadata.max.retention.* keys."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    max_retention_bytes: int = 100 * 1024 * 1024
    max_retention_ms: int = 604_800_000
    max_batch_bytes: int = 8 * 1024 * 1024
    #: pykbroker.metadata.log.cut.at: the operator gives up the records from this offset on
    cut_at: int | None = None
    #: pykbroker.metadata.reserve.bytes
    reserve_bytes: int = 0

    def log_config(self) -> LogConfig:
        # Records leave only when a snapshot replaces them, never by age or size.
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            retention_ms=-1,
            retention_bytes=-1,
            max_message_bytes=self.max_batch_bytes,
            file_delete_delay_ms=0,
        )


@dataclass(slots=True)
class MetadataStorage:
    """The open folder `__cluster_metadata-0`."""

    disk: Disk
    log_dir: str
    path: str
    config: StorageConfig
    log: PartitionLog
    snapshots: dict[OffsetAndEpoch, int]
    reserve: Reserve
    _note: FlushedNote
    _partial: PartialSnapshot
    #: a fetched snapshot that is in place, while the log does not start after it yet
    _in_place: tuple[OffsetAndEpoch, checkpoint.Snapshot] | None = None
    _size_at_roll: int = 0

    @classmethod
    def open(
        cls, disk: Disk, log_dir: str, config: StorageConfig, now_ms: int, *, is_observer: bool = False
    ) -> MetadataStorage:
        """Open the folder. With `is_observer` the replica never votes, so it may fetch damaged records again."""
        path = f"{log_dir}/{DIRECTORY}"
        try:
            disk.make_dirs(path)
            try:
                return cls._open(disk, log_dir, config, now_ms, is_observer)
            except (OSError, StorageError) as error:
                found = Reserve(disk, log_dir, path, config.reserve_bytes)
                if not is_full(error.cause if isinstance(error, StorageError) else error) or not found.give_up_found():
                    raise
            # Opening writes the log's files again, so a second open is like a start after a crash.
            return cls._open(disk, log_dir, config, now_ms, is_observer)
        except OSError as error:
            raise StorageError(log_dir, error) from error

    @classmethod
    def _open(cls, disk: Disk, log_dir: str, config: StorageConfig, now_ms: int, is_observer: bool) -> MetadataStorage:
        path = f"{log_dir}/{DIRECTORY}"
        note = read_note(disk, path)
        found = intact.find_snapshots(disk, path)
        guard = intact.guard_of(disk, path, note, found, config.cut_at, is_observer=is_observer)
        try:
            log = PartitionLog.open(
                disk,
                path,
                topic=rpc.TOPIC,
                partition=rpc.PARTITION,
                topic_id=rpc.TOPIC_ID,
                config=config.log_config(),
                now_ms=now_ms,
                clean=False,
                # Records that a snapshot covers were fsynced before it, unless it is a leader's snapshot that has not
                # replaced the log yet. Only the rest must be scanned. (Kafka scans everything.)
                recovery_point=min(guard.covered, note.offset) if note.is_known else guard.covered,
                log_start_offset=0,
                high_watermark=0,
                producer_id_expiration_ms=1 << 31,
                # A power loss may cut a segment off and leave the next one empty. Without `dense` the log would seem to
                # end at the empty segment's base offset.
                dense=True,
                guard=guard,
            )
        except DamagedLog as damage:
            raise LostMetadata(intact.explain(damage)) from damage
        if note.is_outdated:
            logger.info(
                "%s: another program has written to the log since pykbroker did, so pykbroker.flushed is written anew",
                path,
            )
        for warning in intact.warnings(path, note, guard):
            logger.warning("%s", warning)
        found.set_damaged_aside(disk, path, now_ms)
        snapshots = _recover_snapshots(disk, path, log.log_start_offset)
        reserve = Reserve(disk, log_dir, path, config.reserve_bytes)
        flushed, partial = FlushedNote(disk, path, note), PartialSnapshot(disk, path)
        storage = cls(disk, log_dir, path, config, log, snapshots, reserve, flushed, partial)
        log.keeper = storage
        latest = storage.latest_snapshot
        epochs = log.epochs.entries()
        end = OffsetAndEpoch(log.log_end_offset, epochs[-1][0] if epochs else 0)
        if latest is not None and latest > end:
            # The node stopped after it took a leader's snapshot and before it emptied the log, or only covered records
            # are damaged.
            storage._restart_log(latest)
        # The operator may have given records up.
        storage._note.lower_to(log.log_end_offset)
        storage.make_reserve()
        return storage

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def _guard(self, function: Callable[[], T], *, again: bool = True) -> T:
        """Raise disk errors as StorageError. On a full disk, give up the reserve and call `function` once more if
        `again`."""
        try:
            try:
                return function()
            except OSError as error:
                if not again or not is_full(error) or not self.reserve.give_up():
                    raise
                return function()
        except OSError as error:
            raise StorageError(self.log_dir, error) from error

    # The state from which a node starts

    def read_election_state(self) -> ElectionState | None:
        path = f"{self.path}/{QUORUM_STATE}"
        if not self._guard(lambda: self.disk.exists(path)):
            return None
        return ElectionState.from_bytes(self._guard(lambda: read_file(self.disk, path)))

    def write_election_state(self, state: ElectionState) -> None:
        """Write quorum-state. Durable on return."""
        data = state.to_bytes() + MARK
        self._guard(lambda: write_atomic(self.disk, f"{self.path}/{QUORUM_STATE}", data))

    def log_view(self) -> LogView:
        # The recovered records were read from the page cache, and may not be durable yet.
        self.note_flushed(self.flush())
        return LogView(
            self.log.log_start_offset,
            self.log.log_end_offset,
            self.log.log_end_offset,
            self.log.epochs.entries(),
            dict(self.snapshots),
        )

    def voter_history(self, static_voters: VoterSet) -> VoterHistory:
        """Return the voters and kraft.version of the latest snapshot and everything after it."""
        history = VoterHistory(static_voters)
        start = self.log.log_start_offset
        latest = self.latest_snapshot
        if latest is not None:
            snapshot = self.load_snapshot(latest, with_values=False)
            history.reset(latest.offset - 1, snapshot.voters, snapshot.kraft_version)
            start = latest.offset
        for data in self._scan(start, self.log.log_end_offset):
            for position, header in iter_batches(data):
                if not header.is_control or header.base_offset < start:
                    continue
                view = memoryview(data)[position : position + header.size_in_bytes]
                for offset, record in batches.control_records(view):
                    if record.type is batches.ControlType.KRAFT_VOTERS:
                        history.sets.add(offset, VoterSet.from_record(record.message))
                    elif record.type is batches.ControlType.KRAFT_VERSION:
                        history.versions.add(offset, record.message.kraft_version)
                    elif record.type is batches.ControlType.LEADER_CHANGE:
                        history.electors = batches.electors(record)
        return history

    def _scan(self, start: int, end: int) -> Iterator[bytes]:
        offset = start
        while offset < end:
            data = self.read(offset, _SCAN_BYTES, end)
            next_offset = offset
            for _, header in iter_batches(data):
                next_offset = header.next_offset
            if next_offset <= offset:
                raise AssertionError(f"{self.path}: nothing to read at offset {offset}, the log ends at {end}")
            yield data
            offset = next_offset

    # The log

    def has_room_for(self, size_bytes: int) -> bool:
        """Return True if `size_bytes` of records can be appended, if necessary without the reserve."""
        return self._guard(lambda: self.reserve.has_room_for(size_bytes))

    def make_reserve(self) -> bool:
        """Create the reserve if there is room for it. Return True if it exists now."""
        try:
            return self._guard(self.reserve.make)
        except StorageError as error:
            if error.is_full:
                return False
            raise

    def append(self, records: bytes, epoch: int, now_ms: int) -> None:
        """Write batches unchanged: `RaftNode` has built or checked them. Durable after `flush`."""

        def write() -> None:
            self.log.append_as_leader(records, leader_epoch=epoch, now_ms=now_ms, origin=AppendOrigin.RAFT_LEADER)

        try:
            write()
        except StorageError as error:
            # The part that was written is cut off again.
            if not error.is_full or not self._guard(self.reserve.give_up):
                raise
            write()

    def flush(self) -> int:
        """Fsync the log. Return the offset below which everything is durable now."""
        end = self.log.log_end_offset
        self.log.flush()
        return end

    def note_flushed(self, offset: int) -> None:
        """Record that `flush` has returned `offset`, and the log was not cut since. The next start checks for records
        below it."""
        try:
            self._guard(lambda: self._note.raise_to(offset))
        except StorageError as error:
            # Without room the note has a lower offset than it could. The next fsync raises it.
            if not error.is_full:
                raise

    def before_truncation(self, log: PartitionLog) -> list[Callable[[], None]]:
        offset = log.recovery_point
        return [lambda: self._guard(lambda: self._note.lower_to(offset))]

    def read(self, offset: int, max_bytes: int, upper_offset: int) -> bytes:
        """Return whole batches from the one that contains `offset`, at least one."""
        if offset >= upper_offset:
            return b""
        return self.log.read(offset, max_bytes, upper_offset).joined()

    def truncate(self, offset: int) -> None:
        """Cut off everything from `offset` on. Durable on return. On a full disk nothing is cut."""
        self._require_room()
        self.log.truncate_to(offset)

    def _require_room(self) -> None:
        """Raise StorageError if there is no room for the writes of a cut: a cut that runs out of room half way loses
        the log."""
        if not self.has_room_for(0):
            raise StorageError(self.log_dir, OSError(errno.ENOSPC, "no room to cut the metadata log"))

    def set_high_watermark(self, offset: int) -> None:
        self.log.set_high_watermark(offset)

    def close(self) -> None:
        self._partial.close()
        end, is_sound = self.log.log_end_offset, self.log.files.is_sound
        self.log.close(clean=True)

        def end_note() -> None:
            if is_sound:
                self._note.raise_to(end)
            self._note.sync()
            self._note.close()

        self._guard(end_note)

    # Snapshots

    def write_snapshot(
        self,
        snapshot: OffsetAndEpoch,
        values: Iterable[bytes],
        *,
        now_ms: int,
        last_timestamp_ms: int,
        kraft_version: int,
        voters: VoterSet | None,
    ) -> int:
        """Write a snapshot of the state that is committed below `snapshot.offset`. Return its size, for
        `note_snapshot`. May run on a thread."""
        # An observer does not fsync the records that it fetches; those that a snapshot covers must be durable before it
        # is.
        self.log.flush(snapshot.offset)
        data = checkpoint.encode(
            values,
            epoch=snapshot.epoch,
            now_ms=now_ms,
            last_timestamp_ms=last_timestamp_ms,
            kraft_version=kraft_version,
            voters=voters,
        )
        name = checkpoint.file_name(snapshot)
        # `data` can be read only once: after a full disk the next snapshot is tried, not this one again.
        return self._guard(lambda: write_checkpoint(self.disk, self.path, name, data), again=False)

    def note_snapshot(self, snapshot: OffsetAndEpoch, size: int) -> None:
        """Add a snapshot that is written. Separate from the writing, because the loop reads `snapshots` while a thread
        writes."""
        self.snapshots[snapshot] = size

    def load_snapshot(self, snapshot: OffsetAndEpoch, *, with_values: bool = True) -> checkpoint.Snapshot:
        path = f"{self.path}/{checkpoint.file_name(snapshot)}"
        return checkpoint.decode(self._guard(lambda: read_file(self.disk, path)), with_values=with_values)

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        """Return a part of the file, cut at any position."""

        def read() -> bytes:
            file = self.disk.open(f"{self.path}/{checkpoint.file_name(snapshot)}")
            try:
                return file.pread(max_bytes, position)
            finally:
                file.close()

        return self._guard(read)

    def has_room_for_snapshot(self, size_bytes: int) -> bool:
        """Return True if `size_bytes` of a snapshot can be fetched, if necessary without the reserve."""
        return self._guard(lambda: self.reserve.has_room_for_all_of(size_bytes), again=False)

    def _keep_room(self, write: Callable[[], T]) -> T:
        """Write a part of a fetched snapshot. On a full disk, drop the fetched parts, so that they do not fill the room
        that was left, and raise SnapshotDropped."""
        try:
            return self._guard(write, again=False)
        except StorageError as error:
            if not error.is_full:
                raise
            self._guard(self._partial.drop, again=False)
            raise SnapshotDropped(str(error)) from error

    def append_chunk(self, chunk: SnapshotChunk) -> None:
        """Write the next part of a snapshot that is being fetched. Raises SnapshotDropped."""

        def write() -> None:
            if not self.reserve.has_room_for_all_of(chunk.size - chunk.position):
                raise OSError(errno.ENOSPC, "no room for the rest of a snapshot", self.path)
            self._partial.write(chunk.id, chunk.position, chunk.data)

        self._keep_room(write)

    def install_snapshot(self, last: SnapshotChunk) -> tuple[int, checkpoint.Snapshot]:
        """Write the last part of a fetched snapshot, put the snapshot in place and start the log after it. Return its
        size and content. Durable on return.

        Raises CorruptMetadataSnapshot if it is not whole, and SnapshotDropped; in both cases the log is as it was.
        After a StorageError of a full disk the snapshot is in place, and the same call does the rest."""
        if self._in_place is None or self._in_place[0] != last.id:
            self.append_chunk(last)
            size, content = self._keep_room(lambda: self._partial.put_in_place(last.id))
            self.snapshots[last.id] = size
            self._in_place = last.id, content
        content = self._in_place[1]
        self._require_room()
        self._guard(lambda: self._restart_log(last.id), again=False)
        self._in_place = None
        return self.snapshots[last.id], content

    def _restart_log(self, snapshot: OffsetAndEpoch) -> None:
        self.log.truncate_fully_and_start_at(snapshot.offset)
        self.log.set_high_watermark(snapshot.offset)
        self._delete_snapshots([known for known in self.snapshots if known < snapshot])

    def _delete_snapshots(self, snapshots: Iterable[OffsetAndEpoch]) -> None:
        for snapshot in list(snapshots):
            path = f"{self.path}/{checkpoint.file_name(snapshot)}"
            # Renamed first, so that a half-deleted folder never offers a snapshot that the log no longer continues.
            self.disk.rename(path, path + ".deleted")
            self.disk.unlink(path + ".deleted")
            del self.snapshots[snapshot]

    def clean(self, now_ms: int) -> int | None:
        """Delete, after a snapshot, older snapshots and records beyond what retention keeps. Return the new log start,
        or None if it did not move."""
        if self.log.size_bytes - self._size_at_roll >= _ROLL_BYTES:
            # The next start scans from the segment of the latest snapshot on: the records of two snapshot intervals.
            try:
                self.log.roll(now_ms)
                self._size_at_roll = self.log.size_bytes
            except StorageError as error:
                if not error.is_full:
                    raise
                logger.warning("The metadata log in %s has no room for a new segment: %s", self.log_dir, error)
        ordered = sorted(self.snapshots)
        keep_from: OffsetAndEpoch | None = None
        total = self.log.size_bytes + sum(self.snapshots.values())
        for old, new in pairwise(ordered):
            too_big = 0 <= self.config.max_retention_bytes < total
            timestamp_ms = self._snapshot_timestamp_ms(old)
            # A snapshot without records has no age.
            too_old = timestamp_ms > 0 and 0 <= self.config.max_retention_ms < now_ms - timestamp_ms
            if not (too_big or too_old):
                break
            total -= self.snapshots[old]
            keep_from = new
        if keep_from is None or keep_from.offset <= self.log.log_start_offset:
            return None
        start = keep_from

        def delete() -> None:
            self.log.delete_records_before(start.offset)
            self.log.retire(now_ms)
            delete_files(self.disk, self.log.purge(now_ms))
            self._delete_snapshots([known for known in self.snapshots if known < start])
            self.disk.fsync_dir(self.path)
            self._size_at_roll = min(self._size_at_roll, self.log.size_bytes)

        self._guard(delete)
        return start.offset

    def _snapshot_timestamp_ms(self, snapshot: OffsetAndEpoch) -> int:
        head = self.read_snapshot(snapshot, 0, 64 * 1024)
        for _, record in batches.control_records(head):
            if record.type is batches.ControlType.SNAPSHOT_HEADER:
                return int(record.message.last_contained_log_timestamp)
        return 0


def _recover_snapshots(disk: Disk, path: str, log_start_offset: int) -> dict[OffsetAndEpoch, int]:
    keep: dict[OffsetAndEpoch, int] = {}
    remove: list[str] = []
    for name in disk.list(path):
        parsed = checkpoint.parse_name(name)
        if parsed is None:
            continue
        if parsed.suffix or parsed.id.offset < log_start_offset:
            remove.append(name)
            continue
        file = disk.open(f"{path}/{name}")
        keep[parsed.id] = file.size()
        file.close()
    for name in remove:
        disk.unlink(f"{path}/{name}")
    return keep


def write_checkpoint(disk: Disk, folder: str, name: str, data: Iterable[bytes]) -> int:
    """Write a snapshot file, whole or not at all. Return its size."""
    temporary = f"{folder}/{name[: -len('.checkpoint')]}-write.checkpoint.part"
    size = 0
    file = disk.open(temporary, create=True)
    try:
        try:
            file.truncate(0)
            for part in data:
                size += file.pwritev([part], size)
            file.fsync()
        finally:
            file.close()
        disk.rename(temporary, f"{folder}/{name}")
    except OSError as error:
        if is_full(error):
            # The part that was written must not fill the room that is left.
            disk.unlink(temporary)
        raise
    disk.fsync_dir(folder)
    return size


# Formatting a new directory


def format_voters(disk: Disk, log_dir: str, voters: VoterSet, now_ms: int) -> None:
    """Write kraft.version 1 and the voters as snapshot 0-0, like `StorageTool format --standalone` (one voter) or
    `--initial-controllers`."""
    folder = f"{log_dir}/{DIRECTORY}"
    disk.make_dirs(folder)
    data = checkpoint.encode([], epoch=0, now_ms=now_ms, last_timestamp_ms=now_ms, kraft_version=1, voters=voters)
    write_checkpoint(disk, folder, checkpoint.file_name(BOOTSTRAP_VOTERS), data)
    disk.fsync_dir(log_dir)


def write_bootstrap(disk: Disk, log_dir: str, values: Iterable[bytes], now_ms: int) -> None:
    """Write `bootstrap.checkpoint`: the framed records that the first controller of a new cluster appends."""
    data = b"".join(checkpoint.encode(values, epoch=0, now_ms=now_ms))
    write_atomic(disk, f"{log_dir}/{checkpoint.BOOTSTRAP_FILE}", data)


def read_bootstrap(disk: Disk, log_dir: str) -> list[bytes] | None:
    """Return the values of `bootstrap.checkpoint`, or None if there is none."""
    path = f"{log_dir}/{checkpoint.BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return None
    return [value for batch in checkpoint.decode(read_file(disk, path)).values for value in batch]
