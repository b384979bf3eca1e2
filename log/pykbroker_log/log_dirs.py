"""One log directory: who owns it, whether its last stop was clean, its offset checkpoints, the partition folders
in it.

Responsible for `meta.properties`, `.lock`, `.kafka_cleanshutdown`, the offset checkpoints and the life of folders
(created, deleted in two steps, strayed). Not responsible for which partitions should be here, when to checkpoint,
when to give up a directory: the caller decides, and tells with `fail`.

Invariants:
* `.kafka_cleanshutdown` exists only between a clean stop and the next start, and only if every folder had been
  recovered.
* A checkpoint keeps the entries of partitions that were not opened in this run.
* A recovery point in the checkpoint file is never beyond what is on disk: it is lowered there before a log is
  truncated.
* A malformed checkpoint is set aside and rebuilt; it costs a scan, never the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    TopicPartition,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_uuid,
    encode_clean_shutdown,
    encode_offsets,
    encode_properties,
    encode_uuid,
)
from pykbroker_log.disk import Disk, Lock, parent_of, read_file, remove_tree, write_atomic
from pykbroker_log.loading import set_aside
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS

logger = logging.getLogger(__name__)

ABSENT, EMPTY, FORMATTED, UNFORMATTED = "absent", "empty", "formatted", "unformatted"


@dataclass(slots=True, frozen=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: bytes

    def encode(self, now_ms: int) -> bytes:
        values = {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": encode_uuid(self.directory_id),
        }
        return encode_properties(values, now_ms)

    @classmethod
    def decode(cls, data: bytes) -> MetaProperties:
        values = decode_properties(data)
        try:
            if values["version"] != "1":
                raise MalformedFile(f"version {values['version']}, only 1 is known")
            return cls(values["cluster.id"], int(values["node.id"]), decode_uuid(values["directory.id"]))
        except (KeyError, ValueError) as error:
            raise MalformedFile(f"{names.META_PROPERTIES}: {error}") from None


def state_of(disk: Disk, path: str) -> str:
    """ABSENT, EMPTY (nothing but what a file system puts there), FORMATTED or UNFORMATTED (someone else's files)."""
    if not disk.is_dir(path):
        return ABSENT
    if disk.exists(f"{path}/{names.META_PROPERTIES}"):
        return FORMATTED
    return UNFORMATTED if set(disk.list(path)) - {"lost+found", names.LOCK} else EMPTY


def format_dir(disk: Disk, path: str, meta: MetaProperties, now_ms: int, bootstrap: bytes | None = None) -> None:
    """Make `path` a log directory. `meta.properties` comes last: with it, the directory is formatted."""
    disk.make_dirs(path)
    if bootstrap is not None:
        write_atomic(disk, f"{path}/{names.BOOTSTRAP_CHECKPOINT}", bootstrap)
    write_atomic(disk, f"{path}/{names.META_PROPERTIES}", meta.encode(now_ms))
    disk.fsync_dir(parent_of(path))


@dataclass(slots=True, frozen=True)
class Folder:
    """A partition's folder as found on disk. `mark` is "", "-delete", "-future" or "-stray"."""

    name: str
    topic: str
    partition: int
    mark: str
    topic_id: bytes | None


class LogDir:
    """Use: `lock`, `start`, then `folders` and `open_log`; checkpoints now and then; `close`. All raise
    StorageError."""

    __slots__ = (
        "_doomed",
        "_high_watermarks",
        "_lock",
        "_log_starts",
        "_recovery_points",
        "_unrecovered",
        "clean",
        "disk",
        "logs",
        "meta",
        "offline",
        "path",
        "previous_broker_epoch",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.meta: MetaProperties | None = None
        #: the stop before this start was clean
        self.clean = False
        #: of that stop; -1 if unknown
        self.previous_broker_epoch = -1
        self.offline: StorageError | None = None
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._lock: Lock | None = None
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._unrecovered: set[str] = set()
        self._doomed: list[tuple[int, str]] = []

    def __repr__(self) -> str:
        return f"LogDir({self.path}, {len(self.logs)} logs)"

    # -- start and stop

    def lock(self) -> None:
        """Raises OSError when another process (or this one) has the directory."""
        self._lock = self.disk.lock(f"{self.path}/{names.LOCK}")

    def start(self, now_ms: int) -> None:
        """Read what the last run left. Raises StorageError, MalformedFile for `meta.properties`."""
        try:
            self.meta = MetaProperties.decode(read_file(self.disk, f"{self.path}/{names.META_PROPERTIES}"))
            marker = f"{self.path}/{names.CLEAN_SHUTDOWN}"
            if self.disk.exists(marker):
                self.previous_broker_epoch = decode_clean_shutdown(read_file(self.disk, marker))
                self.clean = True
                # First of all, and durably: a crash from now on is a crash.
                self.disk.unlink(marker)
                self.disk.fsync_dir(self.path)
            self._recovery_points = self._read_offsets(names.RECOVERY_POINTS, now_ms)
            self._log_starts = self._read_offsets(names.LOG_START_OFFSETS, now_ms)
            self._high_watermarks = self._read_offsets(names.HIGH_WATERMARKS, now_ms)
            if not self.clean:
                self._unrecovered = {folder.name for folder in self.folders() if not folder.mark}
        except OSError as error:
            raise self.fail(error) from error

    def _read_offsets(self, name: str, now_ms: int) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self.disk.exists(path):
            return {}
        try:
            return decode_offsets(read_file(self.disk, path))
        except MalformedFile as error:
            set_aside(self.disk, path, now_ms, str(error))
            return {}

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close every log. `clean`: flushed, checkpointed, and said so for the next start."""
        try:
            if clean and self.offline is None:
                for log in self.logs.values():
                    log.close(clean=True)
                self.checkpoint_recovery_points()
                self.checkpoint_log_start_offsets()
                self.checkpoint_high_watermarks()
                if not self._unrecovered:
                    marker = f"{self.path}/{names.CLEAN_SHUTDOWN}"
                    write_atomic(self.disk, marker, encode_clean_shutdown(broker_epoch))
        except OSError as error:
            raise self.fail(error) from error
        finally:
            for log in self.logs.values():
                log.close(clean=False)
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def fail(self, error: OSError) -> StorageError:
        """The directory is offline from now on; nothing more is written to it."""
        if self.offline is None:
            self.offline = StorageError(self.path, error)
        return self.offline

    # -- folders

    def folders(self) -> list[Folder]:
        """The partition folders, not `__cluster_metadata`'s. Anything else in the directory is left alone."""
        found = []
        for name in self.disk.list(self.path):
            path = f"{self.path}/{name}"
            if name.startswith(".") or not self.disk.is_dir(path):
                continue
            parsed = names.parse_partition_dir(name)
            if parsed is None:
                if name != "lost+found":
                    logger.warning("%s is no partition's folder: ignored", path)
            elif parsed.topic != names.METADATA_TOPIC:
                found.append(Folder(name, parsed.topic, parsed.partition, parsed.mark, self._topic_id(path)))
        return found

    def _topic_id(self, path: str) -> bytes | None:
        metadata = f"{path}/{names.PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_file(self.disk, metadata)) if self.disk.exists(metadata) else None
        except MalformedFile:
            return None

    def open_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
        *,
        producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> PartitionLog:
        """The partition's log, created when absent, recovered when the last stop was not clean."""
        key = (topic, partition)
        name = names.partition_dir(topic, partition)
        log = PartitionLog.open(
            self.disk,
            f"{self.path}/{name}",
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            now_ms=now_ms,
            clean=self.clean,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            high_watermark=self._high_watermarks.get(key, 0),
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        log.before_truncation = self._before_truncation
        self.logs[key] = log
        self._unrecovered.discard(name)
        if log.recovery is not None:
            logger.info("%s-%d: %s; the log ends at offset %d", topic, partition, log.recovery, log.log_end_offset)
        return log

    def _before_truncation(self, log: PartitionLog) -> None:
        if log.recovery_point < self._recovery_points.get((log.topic, log.partition), 0):
            self.checkpoint_recovery_points()

    def delete(self, log: PartitionLog, now_ms: int, unique: str) -> str:
        """Take the partition's folder away. Its name frees up at once, its files go with `purge` after the delay."""
        return self._rename(log, now_ms + log.config.file_delete_delay_ms, unique, names.DELETE_DIR)

    def set_aside(self, folder: Folder, unique: str) -> str:
        """A folder that the metadata knows nothing of: kept for the operator, not served."""
        target = names.marked_dir(folder.topic, folder.partition, unique, names.STRAY_DIR)
        self._move(folder.name, target)
        self._forget((folder.topic, folder.partition), folder.name)
        logger.warning("%s/%s belongs to no known topic: it is now %s", self.path, folder.name, target)
        return target

    def _rename(self, log: PartitionLog, due_ms: int, unique: str, mark: str) -> str:
        log.close(clean=False)
        name = names.partition_dir(log.topic, log.partition)
        target = names.marked_dir(log.topic, log.partition, unique, mark)
        self._move(name, target)
        self.logs.pop((log.topic, log.partition), None)
        self._forget((log.topic, log.partition), name)
        self._doomed.append((due_ms, target))
        return target

    def _move(self, name: str, target: str) -> None:
        try:
            self.disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        except OSError as error:
            raise self.fail(error) from error

    def _forget(self, key: TopicPartition, name: str) -> None:
        for offsets in (self._recovery_points, self._log_starts, self._high_watermarks):
            offsets.pop(key, None)
        self._unrecovered.discard(name)

    def purge(self, now_ms: int, *, all_marked: bool = False) -> None:
        """Remove deleted folders whose delay is over; `all_marked`: also those that an earlier run has left."""
        due = [name for due_ms, name in self._doomed if due_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        try:
            if all_marked:
                due += [folder.name for folder in self.folders() if folder.mark == names.DELETE_DIR]
            for name in dict.fromkeys(due):
                remove_tree(self.disk, f"{self.path}/{name}")
        except OSError as error:
            raise self.fail(error) from error

    # -- checkpoints

    def checkpoint_recovery_points(self) -> None:
        self._recovery_points.update(self._of_logs(lambda log: log.recovery_point))
        self._write(names.RECOVERY_POINTS, self._recovery_points)

    def checkpoint_high_watermarks(self) -> None:
        self._high_watermarks.update(self._of_logs(lambda log: log.high_watermark))
        self._write(names.HIGH_WATERMARKS, self._high_watermarks)

    def checkpoint_log_start_offsets(self) -> None:
        for key, log in self.logs.items():
            if log.log_start_offset > log.first_segment_offset:
                self._log_starts[key] = log.log_start_offset
            else:
                # The first segment says it already.
                self._log_starts.pop(key, None)
        self._write(names.LOG_START_OFFSETS, self._log_starts)

    def _of_logs(self, value: Callable[[PartitionLog], int]) -> dict[TopicPartition, int]:
        return {key: value(log) for key, log in self.logs.items()}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            write_atomic(self.disk, f"{self.path}/{name}", encode_offsets(offsets))
        except OSError as error:
            raise self.fail(error) from error

    def usage(self) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        try:
            return self.disk.usage(self.path)
        except OSError as error:
            raise self.fail(error) from error
