"""One log directory: its lock, whether its last stop was clean, its offset checkpoints, and its partition folders.

Responsible for `meta.properties`, `.lock`, `.kafka_cleanshutdown`, the offset checkpoints and the life of folders
(creating, deleting in two steps, setting strays aside). Not responsible for which partitions should be here, for when
to checkpoint, nor for when to give up a directory: the caller decides that and calls `take_offline`.

Invariants:
* `.kafka_cleanshutdown` exists only from a clean stop until a later run changes a partition, and only if every folder
  had been recovered (clean_shutdown.py explains why).
* A checkpoint keeps the entries of partitions that were not opened in this run.
* A recovery point in the checkpoint file is never beyond what is on disk: it is lowered there before a log is
  truncated.
* A malformed checkpoint is set aside and rebuilt; it costs a scan, but the start goes on.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from pykbroker_log import names
from pykbroker_log.checkpoints import (
    MalformedFile,
    TopicPartition,
    decode_offsets,
    decode_partition_metadata,
    encode_offsets,
)
from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.disk import Disk, Lock, read_file, remove_tree, write_atomic
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_loading import set_aside
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery_job import Unrecovered
from pykbroker_wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Folder:
    """A partition's folder as found on disk. `mark` is "", "-delete", "-future" or "-stray"."""

    name: str
    topic: str
    partition: int
    mark: str
    topic_id: bytes | None


class LogDir:
    """One log directory. Call `open`, then `set_strays_aside` and `open_log`; write checkpoints now and then; call
    `close`. All may raise StorageError."""

    __slots__ = (
        "_cleaner_offsets",
        "_contents",
        "_doomed",
        "_folders",
        "_futures",
        "_high_watermarks",
        "_lock",
        "_log_starts",
        "_promised",
        "_recovery_points",
        "_unrecovered",
        "directory_id",
        "disk",
        "logs",
        "offline",
        "path",
        "sign",
    )

    def __init__(self, disk: Disk, path: str, directory_id: bytes, lock: Lock | None) -> None:
        """Callers use `open` or `out_of_order` instead."""
        self.disk = disk
        self.path = path
        self.directory_id = directory_id
        #: the clean shutdown file
        self.sign = CleanShutdown(disk, path)
        self.offline = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._lock = lock
        # The newest contents of each checkpoint file, with a number that grows.
        self._contents: dict[str, tuple[int, bytes]] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        # The least end offset of a folder's log according to the checkpoints, until the log has been opened.
        self._promised: dict[TopicPartition, int] = {}
        # The offset up to which each log was compacted. If compaction is turned off, the entry stays, because the gaps
        # stay.
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        # Partitions that have a folder here, open or not.
        self._folders: set[TopicPartition] = set()
        # The folders of copies that are to replace a log in another directory. A partition here is never in `_folders`,
        # so that each has one entry in the checkpoints.
        self._futures: dict[TopicPartition, str] = {}
        # Partitions whose folder has not been opened since an unclean stop.
        self._unrecovered: set[TopicPartition] = set()
        # Deleted folders whose files are still there.
        self._doomed: list[str] = []

    def __repr__(self) -> str:
        return f"LogDir({self.path}, {len(self.logs)} logs)"

    # -- start and stop

    @classmethod
    def open(cls, disk: Disk, path: str, directory_id: bytes, now_ms: int) -> LogDir:
        """Lock the directory and read the files of the last run. Raises StorageError; OSError if another broker has the
        lock."""
        log_dir = cls(disk, path, directory_id, disk.lock(f"{path}/{names.LOCK}"))
        try:
            log_dir._start(now_ms)
        except Exception as error:
            log_dir._release()
            if isinstance(error, OSError):
                raise log_dir._failed(error) from error
            raise
        return log_dir

    @classmethod
    def out_of_order(cls, disk: Disk, path: str) -> LogDir:
        """Represent a directory that could not be opened: offline from the start, with unknown contents."""
        log_dir = cls(disk, path, ZERO_UUID, None)
        log_dir.offline = True
        return log_dir

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _start(self, now_ms: int) -> None:
        self.sign.read()
        self._recovery_points = self._read_offsets(names.RECOVERY_POINTS, now_ms)
        self._log_starts = self._read_offsets(names.LOG_START_OFFSETS, now_ms)
        self._high_watermarks = self._read_offsets(names.HIGH_WATERMARKS, now_ms)
        self._cleaner_offsets = self._read_offsets(names.CLEANER_OFFSETS, now_ms)
        for name, parsed in self._found():
            key = parsed.topic, parsed.partition
            if parsed.mark == "":
                self._folders.add(key)
            elif parsed.mark == names.FUTURE_DIR and key not in self._futures:
                self._futures[key] = name
            elif parsed.mark in (names.DELETE_DIR, names.FUTURE_DIR):
                self._doomed.append(name)
        for key in self._folders:
            self._promised[key] = max(self._recovery_points.get(key, 0), self._high_watermarks.get(key, 0))
        if not self.sign.was_clean:
            self._unrecovered = set(self._folders)

    def claim(self) -> None:
        """Remove the clean shutdown file, so that partitions may be changed: see clean_shutdown.py. Raises
        StorageError."""
        try:
            self.sign.claim()
        except OSError as error:
            raise self._failed(error) from error

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
        """Close every log that is still open. With `clean`, flush and checkpoint all logs and record the clean stop for
        the next start. `broker_epoch` is the epoch of this run's registration, or -1."""
        try:
            if not self.offline and not self.sign.is_claimed:
                self.sign.keep(broker_epoch)
            elif clean and not self.offline:
                for log in self.logs.values():
                    log.close(clean=True)
                self.checkpoint()
                if not self._unrecovered:
                    self.sign.write(broker_epoch)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            for log in self.logs.values():
                log.close(clean=False)
            self._release()

    def take_offline(self) -> None:
        """Stop all writes to this directory. Buffers that readers already have stay valid."""
        self.offline = True
        for log in self.logs.values():
            log.close(clean=False)
        self.logs.clear()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(self.path, error)

    # -- folders

    @property
    def partition_count(self) -> int:
        return len(self._folders)

    @property
    def partitions(self) -> Set[TopicPartition]:
        """The partitions that have a folder here, open or not."""
        return self._folders

    def stored_bytes(self, topic: str, partition: int) -> int:
        """Return the size in bytes of a log that is not open. Raises StorageError."""
        path = f"{self.path}/{names.partition_dir(topic, partition)}"
        try:
            return sum(size for name, size in self.disk.scan(path) if name.endswith(names.LOG))
        except OSError as error:
            raise self._failed(error) from error

    def extent(self, topic: str, partition: int) -> tuple[str, int]:
        """Return the name and size of the last segment of a log that is not open. Raises StorageError."""
        path = f"{self.path}/{names.partition_dir(topic, partition)}"
        try:
            return max(
                ((name, size) for name, size in self.disk.scan(path) if name.endswith(names.LOG)), default=("", 0)
            )
        except OSError as error:
            raise self._failed(error) from error

    def holds(self, topic: str, partition: int) -> bool:
        """Return True if the partition has a folder here."""
        return (topic, partition) in self._folders

    @property
    def leftovers(self) -> list[str]:
        """Folders that were deleted, in this run or an earlier one, and still have their files; see `delete_folder`."""
        return list(self._doomed)

    def folders(self) -> list[Folder]:
        """Return the partition folders, without that of `__cluster_metadata` and without other entries."""
        return [
            Folder(name, found.topic, found.partition, found.mark, self._topic_id(f"{self.path}/{name}"))
            for name, found in self._found()
        ]

    def _found(self) -> list[tuple[str, names.PartitionDirName]]:
        found = []
        for name in self.disk.list(self.path):
            path = f"{self.path}/{name}"
            if name.startswith(".") or name.endswith("checkpoint") or not self.disk.is_dir(path):
                continue
            parsed = names.parse_partition_dir(name)
            if parsed is None:
                if name != "lost+found":
                    logger.warning("%s is no partition's folder: ignored", path)
            elif parsed.topic != names.METADATA_TOPIC:
                found.append((name, parsed))
        return found

    def _topic_id(self, path: str) -> bytes | None:
        metadata = f"{path}/{names.PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_file(self.disk, metadata)) if self.disk.exists(metadata) else None
        except MalformedFile:
            return None

    def set_strays_aside(self, is_known: Callable[[str, int, bytes | None], bool]) -> None:
        """Rename every folder that is not in the metadata: it is kept for the operator and not served."""
        try:
            for folder in self.folders():
                if folder.mark or is_known(folder.topic, folder.partition, folder.topic_id):
                    continue
                self._set_aside(folder.topic, folder.partition, folder.topic_id, "belongs to no known topic")
        except OSError as error:
            raise self._failed(error) from error

    def set_aside(self, topic: str, partition: int, why: str) -> None:
        """Rename a folder that must not be served: it is kept for the operator. Raises StorageError."""
        try:
            topic_id = self._topic_id(f"{self.path}/{names.partition_dir(topic, partition)}")
            self._set_aside(topic, partition, topic_id, why)
        except OSError as error:
            raise self._failed(error) from error

    def _set_aside(self, topic: str, partition: int, topic_id: bytes | None, why: str) -> None:
        name = names.partition_dir(topic, partition)
        target = self._marked(topic, partition, topic_id or ZERO_UUID, names.STRAY_DIR)
        self.sign.claim()
        self.disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        self._forget((topic, partition))
        logger.warning("%s/%s %s: it is now %s", self.path, name, why, target)

    def _marked(self, topic: str, partition: int, topic_id: bytes, mark: str) -> str:
        """Return an unused folder name. The topic id makes it unique, unless the partition was created and deleted more
        than once."""
        unique = int.from_bytes(topic_id, "big")
        while True:
            name = names.marked_dir(topic, partition, f"{unique:032x}", mark)
            if not self.disk.exists(f"{self.path}/{name}"):
                return name
            unique = (unique + 1) % (1 << 128)

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
        """Open the partition's log, which is created if it does not exist and recovered if the last stop was not clean.
        A log that could not be created completely leaves no folder."""
        self.claim()
        key = (topic, partition)
        path = f"{self.path}/{names.partition_dir(topic, partition)}"
        is_made = key not in self._folders and not self.disk.exists(path)
        try:
            log = PartitionLog.open(
                self.disk,
                path,
                topic=topic,
                partition=partition,
                topic_id=topic_id,
                config=config,
                now_ms=now_ms,
                clean=key not in self._unrecovered,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._log_starts.get(key, 0),
                high_watermark=self._high_watermarks.get(key, 0),
                dense=self._is_dense(key, config),
                producer_id_expiration_ms=producer_id_expiration_ms,
            )
        except StorageError:
            if is_made:
                # Otherwise there could be two folders when the log is created in another directory.
                with suppress(OSError):
                    remove_tree(self.disk, path)
            raise
        self._adopt(log)
        promised = self._promised.pop(key, 0)
        if promised > log.log_end_offset:
            log.missing_behind_end = range(log.log_end_offset, promised)
        return log

    def _is_dense(self, key: TopicPartition, config: LogConfig) -> bool:
        """Return True if the log was never compacted: then a gap between its segments means that a crash removed
        records."""
        return not config.compact and key not in self._cleaner_offsets

    def _adopt(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        log.keeper = self
        log.files.deletion.durable_start_offset = self._log_starts.get(key, 0)
        self.logs[key] = log
        self._folders.add(key)
        self._unrecovered.discard(key)

    # -- logs after an unclean stop

    def is_unrecovered(self, topic: str, partition: int) -> bool:
        """Return True if opening the log would first have to check it, because the last stop was not clean."""
        return (topic, partition) in self._unrecovered

    def unrecovered(
        self, topic: str, partition: int, config: LogConfig, now_ms: int, *, producer_id_expiration_ms: int
    ) -> Unrecovered:
        """Return the input for a job that recovers a log that is not open. Call `recovered` when the job has ended."""
        # This does no I/O: a log that needs recovery is in a directory without the clean shutdown file.
        self.claim()
        key = (topic, partition)
        return Unrecovered(
            path=f"{self.path}/{names.partition_dir(topic, partition)}",
            config=config,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            producer_id_expiration_ms=producer_id_expiration_ms,
            now_ms=now_ms,
            dense=self._is_dense(key, config),
        )

    def recovered(self, topic: str, partition: int, log_end_offset: int) -> None:
        """Record that the log is as after a clean stop, and durable up to its end."""
        self._recovery_points[topic, partition] = log_end_offset
        self._unrecovered.discard((topic, partition))

    def before_truncation(self, log: PartitionLog) -> list[Callable[[], None]]:
        """Return the writes that the thread of a truncation does before it changes the log (partition_log.py)."""
        key = (log.topic, log.partition)
        writes: list[Callable[[], None]] = []
        if log.recovery_point < self._recovery_points.get(key, 0):
            writes.append(self.prepare_recovery_points())
        start, noted = log.log_start_offset, self._log_starts.get(key, 0)
        if start < noted or (start > noted and start > log.files.first_stored_offset):
            writes.append(self.prepare_log_start_offsets())
        if log.recovery_point < self._cleaner_offsets.get(key, 0):
            # Records that are appended there later have not been cleaned.
            self.set_cleaner_offset(log, log.recovery_point)
            writes.append(self.prepare_cleaner_offsets())
        return writes

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
        return f"{self.path}/{self._futures[key]}"

    def durable_end(self, topic: str, partition: int) -> int:
        """Return the offset up to which the partition's copy is known to be durable."""
        return self._recovery_points.get((topic, partition), 0)

    def note_durable_end(self, topic: str, partition: int, offset: int) -> None:
        self._recovery_points[topic, partition] = offset

    def adopt_future(self, future: PartitionLog, log: PartitionLog) -> None:
        """Replace `log` by the copy: see PartitionLog.take_over. Raises StorageError."""
        key = (log.topic, log.partition)
        self.claim()
        future.take_over(log, f"{self.path}/{names.partition_dir(*key)}")
        del self._futures[key]
        self._adopt(future)

    def promote_future(self, topic: str, partition: int) -> None:
        """Make the copy the partition's log when the node starts: the copy had replaced the log, or was about to, and
        the log is gone. Raises StorageError."""
        key = (topic, partition)
        self._rename(self._futures.pop(key), names.partition_dir(topic, partition))
        self._folders.add(key)
        self._unrecovered.add(key)

    def release_future(self, topic: str, partition: int) -> str:
        """Give up the copy. Returns its folder's name; call `doom` with it as soon as no worker writes to the
        folder."""
        name = self._futures.pop((topic, partition))
        self._forget((topic, partition))
        return name

    def doom(self, name: str) -> str | None:
        """Mark the folder of a copy as deleted; `delete_folder` removes its files. Returns the new name, or None if the
        folder was never created. Raises StorageError."""
        parsed = names.parse_partition_dir(name)
        if parsed is None or not self.disk.exists(f"{self.path}/{name}"):
            return None
        target = self._marked(parsed.topic, parsed.partition, ZERO_UUID, names.DELETE_DIR)
        self._rename(name, target)
        self._doomed.append(target)
        return target

    def _rename(self, name: str, target: str) -> None:
        try:
            self.sign.claim()
            self.disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        except OSError as error:
            raise self._failed(error) from error

    # -- deleting

    def mark_deleted(self, topic: str, partition: int, log: PartitionLog | None = None) -> str:
        """Rename the partition's folder, so that its name is free at once; `delete_folder` removes the files. Returns
        the new name. Raises StorageError."""
        key = (topic, partition)
        log = log or self.logs.get(key)
        name = names.partition_dir(topic, partition)
        try:
            self.sign.claim()
            topic_id = log.topic_id if log is not None else self._topic_id(f"{self.path}/{name}")
            if log is not None:
                log.close(clean=False)
            target = self._marked(topic, partition, topic_id or ZERO_UUID, names.DELETE_DIR)
            self.disk.rename(f"{self.path}/{name}", f"{self.path}/{target}")
        except OSError as error:
            raise self._failed(error) from error
        finally:
            # Whatever is left of the folder, it is no longer the partition's.
            self._forget(key)
        self._doomed.append(target)
        return target

    def delete_folder(self, name: str) -> None:
        """Remove a folder of `leftovers`; may run in a thread. Raises StorageError."""
        self.claim()
        try:
            remove_tree(self.disk, f"{self.path}/{name}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed(error) from error
        if name in self._doomed:
            self._doomed.remove(name)

    def _forget(self, key: TopicPartition) -> None:
        self.logs.pop(key, None)
        self._folders.discard(key)
        self._unrecovered.discard(key)
        of_logs = self._recovery_points, self._log_starts, self._high_watermarks, self._cleaner_offsets, self._promised
        for offsets in of_logs:
            offsets.pop(key, None)

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write all checkpoint files. Raises StorageError."""
        for write in self.prepare_all():
            write()

    def prepare_all(self) -> list[Callable[[], None]]:
        writes = [self.prepare_recovery_points(), self.prepare_log_start_offsets(), self.prepare_high_watermarks()]
        return [*writes, self.prepare_cleaner_offsets()] if self._cleaner_offsets else writes

    # Each `prepare_*` collects the offsets on the caller's thread. It returns the write, which fsyncs and may run on a
    # thread.

    def prepare_recovery_points(self) -> Callable[[], None]:
        self._recovery_points.update(self._of_logs(lambda log: log.recovery_point))
        return self._writer(names.RECOVERY_POINTS, self._recovery_points)

    def prepare_high_watermarks(self) -> Callable[[], None]:
        self._high_watermarks.update(self._of_logs(lambda log: log.high_watermark))
        return self._writer(names.HIGH_WATERMARKS, self._high_watermarks)

    def prepare_cleaner_offsets(self) -> Callable[[], None]:
        return self._writer(names.CLEANER_OFFSETS, self._cleaner_offsets)

    def cleaner_offset(self, log: PartitionLog) -> int | None:
        """Return the offset up to which the log has been compacted, or None if it never was."""
        return self._cleaner_offsets.get((log.topic, log.partition))

    def set_cleaner_offset(self, log: PartitionLog, offset: int) -> None:
        """Record that the log may have gaps from now on. The next write of the cleaner offsets makes it durable."""
        self._cleaner_offsets[log.topic, log.partition] = offset
        log.files.segments.is_gapless = False

    def prepare_log_start_offsets(self) -> Callable[[], None]:
        covered = [(log, log.log_start_offset) for log in self.logs.values()]
        for log, start in covered:
            key = (log.topic, log.partition)
            # The start of a tiered log cannot be found from its segments.
            is_needed = log.config.is_tiered or start > log.files.first_stored_offset
            if is_needed or (key in self._log_starts and not log.files.is_closed):
                # An entry stays, even if the first segment begins at the same offset: until a clean stop has fsynced
                # the folder, a power loss may bring back deleted files of segments before that offset.
                self._log_starts[key] = start
            else:
                self._log_starts.pop(key, None)
        write = self._writer(names.LOG_START_OFFSETS, self._log_starts)

        def write_and_tell() -> None:
            write()
            for log, start in covered:
                log.files.deletion.durable_start_offset = start

        return write_and_tell

    def _of_logs(self, value: Callable[[PartitionLog], int]) -> dict[TopicPartition, int]:
        return {key: value(log) for key, log in self.logs.items()}

    def _writer(self, name: str, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        generation = self._contents.get(name, (0, b""))[0] + 1
        self._contents[name] = (generation, encode_offsets(offsets))

        def write() -> None:
            # Two writers of one file can overlap: a periodic one, and one of a truncation, whose offsets must not be
            # lost. Each writes the newest contents to a temporary file of its own, and again if newer contents came
            # during the write.
            while True:
                at, data = self._contents[name]
                try:
                    self.sign.claim()
                    if self._lock is not None and not self.disk.exists(f"{self.path}/{names.LOCK}"):
                        # The volume was unmounted: open files still accept writes, and the broker would not notice.
                        raise FileNotFoundError(errno.ENOENT, "the log directory has gone", self.path)
                    write_atomic(self.disk, f"{self.path}/{name}", data, suffix=f".{generation}.tmp")
                except OSError as error:
                    raise self._failed(error) from error
                if self._contents[name][0] == at:
                    return

        return write

    def usage(self) -> tuple[int, int]:
        """Return the total and the usable bytes of the volume. Raises StorageError."""
        try:
            return self.disk.usage(self.path)
        except OSError as error:
            raise self._failed(error) from error
