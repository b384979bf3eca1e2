"""The side files of a log: `partition.metadata`, `leader-epoch-checkpoint`, producer snapshots.

Invariants:
* They are written without fsync, which would block the event loop at every change of leader and every roll. The next
  flush (`take_unsynced`) makes them durable before it moves the recovery point. A file that was torn by a power loss
  before that flush is noticed and rebuilt.
* A flush fsyncs the folder if a file was created in it. The first flush after the start makes the folder's own name
  durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    decode_partition_metadata,
    encode_epochs,
    encode_partition_metadata,
)
from pykbroker_log.disk import Disk, parent_of, read_file, sync_path, write_new
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.log_loading import set_aside
from pykbroker_log.producers import ProducerStates


class InconsistentTopicId(Exception):
    """The folder belongs to another topic of the same name."""


class SideFiles:
    __slots__ = ("_disk", "_is_named", "_names_changed", "_path", "_taken", "_unsynced", "snapshots")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        #: offsets of the producer snapshots that exist
        self.snapshots: tuple[int, ...] = ()
        # Names without the folder, which may be renamed.
        self._unsynced: list[str] = []
        # Taken by the latest flush, which may not have fsynced them yet.
        self._taken: tuple[str, ...] = ()
        # True at first, because changes by an earlier run, or by the start, are unknown.
        self._names_changed = True
        # True if the folder's own name is durable, as far as this run knows.
        self._is_named = False

    def move_to(self, path: str) -> None:
        """Follow a rename of the folder."""
        self._unsynced = [*self._taken, *self._unsynced]
        self._taken = ()
        self._path = path
        self._names_changed = True
        self._is_named = False

    # -- topic id

    def check_topic_id(self, topic_id: bytes, now_ms: int) -> None:
        path = f"{self._path}/{names.PARTITION_METADATA}"
        if self._disk.exists(path):
            try:
                found = decode_partition_metadata(read_file(self._disk, path))
                if found != topic_id:
                    raise InconsistentTopicId(f"{self._path} belongs to {found.hex()}, not {topic_id.hex()}")
                return
            except MalformedFile as error:
                set_aside(self._disk, path, now_ms, str(error))
        write_new(self._disk, path, encode_partition_metadata(topic_id), sync=False)
        self._written(names.PARTITION_METADATA)

    # -- epochs

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        if not epochs.dirty:
            return
        path = f"{self._path}/{names.LEADER_EPOCHS}"
        write_new(self._disk, path + names.UNFINISHED, encode_epochs(epochs.entries()), sync=False)
        self._disk.rename(path + names.UNFINISHED, path)
        epochs.dirty = False
        self._written(names.LEADER_EPOCHS)

    # -- producer snapshots

    def snapshot_path(self, offset: int) -> str:
        return f"{self._path}/{_snapshot_name(offset)}"

    def take_snapshot(self, producers: ProducerStates, log_start_offset: int) -> None:
        """Write the state up to the log's end, unless a snapshot has it already or the log has no records yet."""
        offset = producers.map_end_offset
        if offset <= max(self.snapshots, default=log_start_offset):
            return
        write_new(self._disk, self.snapshot_path(offset), producers.encode(), sync=False)
        self.snapshots = (*self.snapshots, offset)
        self._written(_snapshot_name(offset))

    def found_unsynced(self, offsets: Iterable[int]) -> None:
        """Add snapshots that loading has written."""
        self._unsynced += map(_snapshot_name, offsets)

    def drop_snapshots(self, *, above: int) -> None:
        for offset in self.snapshots:
            if offset > above:
                self._forget_snapshot(offset)
                self._disk.unlink(self.snapshot_path(offset))

    def _forget_snapshot(self, offset: int) -> None:
        self.snapshots = tuple(other for other in self.snapshots if other != offset)

    def release_snapshots(self, *, upto: int) -> list[str]:
        """Drop the snapshots at or before `upto` from the list; the caller removes the returned files."""
        released = [offset for offset in self.snapshots if offset <= upto]
        self.snapshots = tuple(offset for offset in self.snapshots if offset > upto)
        return [self.snapshot_path(offset) for offset in released]

    def release_snapshot(self, offset: int) -> list[str]:
        """Drop the snapshot at `offset` from the list, if there is one; the caller removes the returned file."""
        if offset not in self.snapshots:
            return []
        self._forget_snapshot(offset)
        return [self.snapshot_path(offset)]

    # -- flush

    def names_changed(self) -> None:
        """Note that a file was created in the folder: the next flush makes its name durable."""
        self._names_changed = True

    def _written(self, name: str) -> None:
        self._unsynced.append(name)
        self.names_changed()

    def take_unsynced(self, *, again: bool = False) -> tuple[Sequence[str], Sequence[str]]:
        """Return the files written since the last call, and the folders in which names have changed; the caller fsyncs
        both. With `again`, include everything that another flush may be fsyncing."""
        # This may run on a thread: a name that is added at the same time is in one of the two lists.
        unsynced, self._unsynced = self._unsynced, []
        folders: list[str] = []
        if self._names_changed or again:
            self._names_changed = False
            folders.append(self._path)
        if not self._is_named or again:
            self._is_named = True
            folders.append(parent_of(self._path))
        if again:
            unsynced = [*self._taken, *unsynced]
        self._taken = tuple(dict.fromkeys(unsynced))
        return [f"{self._path}/{name}" for name in self._taken], folders

    def sync(self) -> None:
        """Make all side files and names durable now."""
        paths, folders = self.take_unsynced(again=True)
        for path in paths:
            sync_path(self._disk, path)
        for folder in folders:
            self._disk.fsync_dir(folder)


def _snapshot_name(offset: int) -> str:
    return names.segment_file(offset, names.SNAPSHOT)
