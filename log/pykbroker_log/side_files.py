"""The files beside the segments: `partition.metadata`, `leader-epoch-checkpoint`, producer snapshots.

Invariants:
* They are written without fsync, which would stop the loop at every change of leader and every roll; the next
  flush makes them durable, before it moves the recovery point. After a power loss before that, what is torn is
  noticed and rebuilt.
* `sync` may run in a thread while the others run on the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    decode_partition_metadata,
    encode_epochs,
    encode_partition_metadata,
)
from pykbroker_log.disk import Disk, parent_of, read_file, write_new
from pykbroker_log.epochs import LeaderEpochs
from pykbroker_log.loading import set_aside
from pykbroker_log.producers import ProducerStates


class InconsistentTopicId(Exception):
    """The folder belongs to another topic of the same name."""


class SideFiles:
    __slots__ = ("_disk", "_path", "_unsynced", "snapshots")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        #: offsets of the producer snapshots that exist
        self.snapshots: list[int] = []
        self._unsynced: list[str] = []

    def move_to(self, path: str) -> None:
        """The folder has another name from here on."""
        self._unsynced = [path + unsynced.removeprefix(self._path) for unsynced in self._unsynced]
        self._path = path

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
        self._unsynced.append(path)

    # -- epochs

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        if not epochs.dirty:
            return
        path = f"{self._path}/{names.LEADER_EPOCHS}"
        write_new(self._disk, path + ".tmp", encode_epochs(epochs.entries()), sync=False)
        self._disk.rename(path + ".tmp", path)
        epochs.dirty = False
        self._unsynced.append(path)

    # -- producer snapshots

    def snapshot_path(self, offset: int) -> str:
        return f"{self._path}/{names.segment_file(offset, names.SNAPSHOT)}"

    def take_snapshot(self, producers: ProducerStates, log_start_offset: int) -> None:
        """The state up to the log's end, unless a file has it already or the log has had nothing yet."""
        offset = producers.map_end_offset
        if offset <= max(self.snapshots, default=log_start_offset):
            return
        path = self.snapshot_path(offset)
        write_new(self._disk, path, producers.encode(), sync=False)
        self.snapshots.append(offset)
        self._unsynced.append(path)

    def found_unsynced(self, offsets: Iterable[int]) -> None:
        """Snapshots that loading has written."""
        self._unsynced += map(self.snapshot_path, offsets)

    def drop_snapshots(self, *, above: int) -> None:
        for offset in [offset for offset in self.snapshots if offset > above]:
            self.snapshots.remove(offset)
            self._disk.unlink(self.snapshot_path(offset))

    def release_snapshots(self, *, upto: int) -> list[str]:
        """Forget those at or before `upto`; the caller removes the files."""
        released = [offset for offset in self.snapshots if offset <= upto]
        self.snapshots = [offset for offset in self.snapshots if offset > upto]
        return [self.snapshot_path(offset) for offset in released]

    def release_snapshot(self, offset: int) -> list[str]:
        """Forget the one at `offset`, if there is one; the caller removes the file."""
        if offset not in self.snapshots:
            return []
        self.snapshots.remove(offset)
        return [self.snapshot_path(offset)]

    # -- flush

    def sync(self) -> None:
        """Make durable what was written since the last time, and the names of everything in the folder."""
        unsynced, self._unsynced = self._unsynced, []
        for path in dict.fromkeys(unsynced):
            try:
                file = self._disk.open(path)
            except FileNotFoundError:
                # Retired or truncated away since; the fsync of the folder covers that.
                continue
            try:
                file.fsync()
            finally:
                file.close()
        self._disk.fsync_dir(self._path)
        self._disk.fsync_dir(parent_of(self._path))
