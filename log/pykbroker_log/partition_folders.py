"""The folders of one log directory: each is the folder of a partition's log, of a copy, of a stray or of a deletion.

Responsible for their names, and for renaming and removing them. Not responsible for the logs in them, nor for which
partitions should be here.

Invariants:
* A folder whose name is not that of a partition is left alone, and so is that of `__cluster_metadata`.
* Before a folder changes, the clean shutdown file is removed (clean_shutdown.py).
* A deleted folder first gets another name, so that its name is free at once; its files go later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, TopicPartition, decode_partition_metadata
from pykbroker_log.disk import Disk, read_file, remove_tree
from pykbroker_log.log_config import StorageError
from pykbroker_wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker_log.clean_shutdown import CleanShutdown

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Folder:
    """A partition's folder as found on disk. `mark` is "", "-delete", "-future" or "-stray"."""

    name: str
    topic: str
    partition: int
    mark: str
    topic_id: bytes | None


class PartitionFolders:
    """All methods that name a disk's work may raise StorageError."""

    __slots__ = ("_deleted", "_disk", "_futures", "_path", "_sign", "_with_log")

    def __init__(self, disk: Disk, path: str, sign: CleanShutdown) -> None:
        """`sign` is the clean shutdown file of the directory."""
        self._disk = disk
        self._path = path
        self._sign = sign
        # Partitions whose log has a folder here, open or not.
        self._with_log: set[TopicPartition] = set()
        # The folders of copies that are to replace a log in another directory. A partition here is never in
        # `_with_log`, so that each has one entry in the checkpoints.
        self._futures: dict[TopicPartition, str] = {}
        # Deleted folders whose files are still there.
        self._deleted: list[str] = []

    def read(self) -> None:
        """Find the folders of the last run."""
        for name, parsed in self._found():
            key = parsed.topic, parsed.partition
            if parsed.mark == "":
                self._with_log.add(key)
            elif parsed.mark == names.FUTURE_DIR and key not in self._futures:
                self._futures[key] = name
            elif parsed.mark in (names.DELETE_DIR, names.FUTURE_DIR):
                self._deleted.append(name)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(self._path, error) from error

    # -- what is there

    @property
    def partitions(self) -> Set[TopicPartition]:
        """The partitions whose log has a folder here, open or not."""
        return self._with_log

    def holds(self, topic: str, partition: int) -> bool:
        """Return True if the log of the partition has a folder here."""
        return (topic, partition) in self._with_log

    def path_of(self, topic: str, partition: int) -> str:
        return f"{self._path}/{names.partition_dir(topic, partition)}"

    def add(self, key: TopicPartition) -> None:
        """Record that the log of the partition has a folder here."""
        self._with_log.add(key)

    def forget(self, key: TopicPartition) -> None:
        self._with_log.discard(key)

    def stored_bytes(self, topic: str, partition: int) -> int:
        """Return the size in bytes of a log that is not open."""
        with self._guarded():
            return sum(size for _, size in self._segments_of(topic, partition))

    def extent(self, topic: str, partition: int) -> tuple[str, int]:
        """Return the name and size of the last segment of a log that is not open."""
        with self._guarded():
            return max(self._segments_of(topic, partition), default=("", 0))

    def _segments_of(self, topic: str, partition: int) -> list[tuple[str, int]]:
        files = self._disk.scan(self.path_of(topic, partition))
        return [(name, size) for name, size in files if name.endswith(names.LOG)]

    def all(self) -> list[Folder]:
        """Return the partition folders, without that of `__cluster_metadata` and without other entries."""
        with self._guarded():
            return [
                Folder(name, found.topic, found.partition, found.mark, self._topic_id(name))
                for name, found in self._found()
            ]

    def _found(self) -> list[tuple[str, names.PartitionDirName]]:
        found = []
        for name in self._disk.list(self._path):
            path = f"{self._path}/{name}"
            if name.startswith(".") or name.endswith("checkpoint") or not self._disk.is_dir(path):
                continue
            parsed = names.parse_partition_dir(name)
            if parsed is None:
                if name != "lost+found":
                    logger.warning("%s is ignored, because its name is not that of a partition's folder", path)
            elif parsed.topic != names.METADATA_TOPIC:
                found.append((name, parsed))
        return found

    def _topic_id(self, name: str) -> bytes | None:
        metadata = f"{self._path}/{name}/{names.PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_file(self._disk, metadata)) if self._disk.exists(metadata) else None
        except MalformedFile:
            return None

    # -- another name

    def set_aside(self, topic: str, partition: int, why: str) -> None:
        """Rename a folder that must not be served: it is kept for the operator."""
        name = names.partition_dir(topic, partition)
        with self._guarded():
            target = self._marked(topic, partition, self._topic_id(name), names.STRAY_DIR)
        self._rename(name, target)
        self._with_log.discard((topic, partition))
        logger.warning("%s/%s %s, so it is renamed to %s", self._path, name, why, target)

    def mark_deleted(self, topic: str, partition: int, topic_id: bytes | None = None) -> str:
        """Rename the partition's folder; `delete` removes its files. Returns the new name. `topic_id` saves a look into
        the folder."""
        name = names.partition_dir(topic, partition)
        # Whatever is left of the folder if this fails, it is no longer the partition's.
        self._with_log.discard((topic, partition))
        with self._guarded():
            target = self._marked(topic, partition, topic_id or self._topic_id(name), names.DELETE_DIR)
        self._rename(name, target)
        self._deleted.append(target)
        return target

    def _marked(self, topic: str, partition: int, topic_id: bytes | None, mark: str) -> str:
        """Return an unused folder name. The topic id makes it unique, unless the partition was created and deleted more
        than once."""
        unique = int.from_bytes(topic_id or ZERO_UUID, "big")
        while True:
            name = names.marked_dir(topic, partition, f"{unique:032x}", mark)
            if not self._disk.exists(f"{self._path}/{name}"):
                return name
            unique = (unique + 1) % (1 << 128)

    def _rename(self, name: str, target: str) -> None:
        with self._guarded():
            self._sign.claim()
            self._disk.rename(f"{self._path}/{name}", f"{self._path}/{target}")

    # -- copies that will become logs of this directory

    @property
    def futures(self) -> list[TopicPartition]:
        """Partitions with a copy in this directory, perhaps from an earlier run, that has not become their log."""
        return list(self._futures)

    def future_path(self, topic: str, partition: int, unique: bytes) -> str:
        """Return the folder of the partition's copy, which the worker that writes the copy creates. `unique` is 16
        bytes that no other copy has in its name."""
        key = (topic, partition)
        if key not in self._futures:
            self._futures[key] = names.marked_dir(topic, partition, unique.hex(), names.FUTURE_DIR)
        return f"{self._path}/{self._futures[key]}"

    def promote_future(self, topic: str, partition: int) -> None:
        """Give the copy's folder the name of the partition's log."""
        self._rename(self._futures.pop((topic, partition)), names.partition_dir(topic, partition))
        self._with_log.add((topic, partition))

    def release_future(self, topic: str, partition: int) -> str:
        """Give up the copy. Returns its folder's name."""
        return self._futures.pop((topic, partition))

    def doom(self, name: str) -> str | None:
        """Mark the folder of a copy as deleted; `delete` removes its files. Returns the new name, or None if the folder
        was never created."""
        parsed = names.parse_partition_dir(name)
        if parsed is None or not self._disk.exists(f"{self._path}/{name}"):
            return None
        target = self._marked(parsed.topic, parsed.partition, None, names.DELETE_DIR)
        self._rename(name, target)
        self._deleted.append(target)
        return target

    # -- deleting

    @property
    def leftovers(self) -> list[str]:
        """Folders that were deleted, in this run or an earlier one, and still have their files; see `delete`."""
        return list(self._deleted)

    def delete(self, name: str) -> None:
        """Remove a folder of `leftovers`; may run in a thread."""
        with self._guarded():
            self._sign.claim()
            try:
                remove_tree(self._disk, f"{self._path}/{name}")
            except FileNotFoundError:
                pass
        if name in self._deleted:
            self._deleted.remove(name)
