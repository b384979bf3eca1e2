"""One log directory: its lock, whether its last stop was clean, and its open logs.

Responsible for `.lock`, `.kafka_cleanshutdown`, and for opening, recovering, replacing and deleting logs. The parts are
`checkpoints` (offset_checkpoints.py) and `folders` (partition_folders.py). Not responsible for which partitions should
be here, for when to checkpoint, nor for when to give up a directory: the caller decides that and calls `take_offline`.

Invariants:
* `.kafka_cleanshutdown` exists only from a clean stop until a later run changes a partition, and only if every folder
  had been recovered (clean_shutdown.py explains why).
* A partition that has no folder here has no log and no offset in the checkpoints here, unless a copy of it is here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pykbroker_log import names
from pykbroker_log.checkpoints import TopicPartition
from pykbroker_log.clean_shutdown import CleanShutdown
from pykbroker_log.disk import Disk, Lock, remove_tree
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.offset_checkpoints import OffsetCheckpoints
from pykbroker_log.partition_folders import PartitionFolders
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery_job import Unrecovered
from pykbroker_log.stopping import settle_together
from pykbroker_wire.primitives import ZERO_UUID


class LogDir:
    """One log directory. Call `open`, then `set_strays_aside` and `open_log`; write checkpoints now and then; call
    `close`. All may raise StorageError."""

    __slots__ = (
        "_lock",
        "_promised",
        "_unrecovered",
        "checkpoints",
        "directory_id",
        "disk",
        "folders",
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
        self.folders = PartitionFolders(disk, path, self.sign)
        self.checkpoints = OffsetCheckpoints(disk, path, self.sign, self.logs)
        self._lock = lock
        # The least end offset of a folder's log according to the checkpoints, until the log has been opened.
        self._promised: dict[TopicPartition, int] = {}
        # Partitions whose folder has not been opened since an unclean stop.
        self._unrecovered: set[TopicPartition] = set()

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
        self.checkpoints.read(now_ms)
        self.folders.read()
        self._promised = {key: self.checkpoints.promised_end(key) for key in self.folders.partitions}
        if not self.sign.was_clean:
            self._unrecovered = set(self.folders.partitions)

    def claim(self) -> None:
        """Remove the clean shutdown file, so that partitions may be changed: see clean_shutdown.py. Raises
        StorageError."""
        try:
            self.sign.claim()
        except OSError as error:
            raise self._failed(error) from error

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Close every log that is still open. With `clean`, flush and checkpoint all logs and record the clean stop for
        the next start. `broker_epoch` is the epoch of this run's registration, or -1."""
        try:
            if not self.offline and not self.sign.is_claimed:
                self.sign.keep(broker_epoch)
            elif clean and not self.offline:
                for log in self.logs.values():
                    log.close(clean=True)
                self.checkpoints.write_all()
                if not self._unrecovered:
                    self.sign.write(broker_epoch)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            for log in self.logs.values():
                log.close(clean=False)
            self._release()

    def settle(self) -> bool:
        """Write everything that a clean stop writes, and keep the logs open. Return True if a copy of the directory
        needs only the clean shutdown file to be that of a clean stop. A log that never had a record needs no file.

        No other code may use the directory from this call to the end of the copy. Raises StorageError.
        """
        try:
            settle_together(self.disk, self.path, [log for log in self.logs.values() if log.log_end_offset])
            self.checkpoints.write_all()
        except OSError as error:
            raise self._failed(error) from error
        return not self._unrecovered

    def take_offline(self) -> None:
        """Stop all writes to this directory. Buffers that readers already have stay valid."""
        self.offline = True
        for log in self.logs.values():
            log.close(clean=False)
        self.logs.clear()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(self.path, error)

    # -- folders

    def set_strays_aside(self, is_known: Callable[[str, int, bytes | None], bool]) -> None:
        """Rename every folder that is not in the metadata: it is kept for the operator and not served."""
        for folder in self.folders.all():
            if not folder.mark and not is_known(folder.topic, folder.partition, folder.topic_id):
                self.set_aside(folder.topic, folder.partition, "belongs to no known topic")

    def set_aside(self, topic: str, partition: int, why: str) -> None:
        """Rename a folder that must not be served: it is kept for the operator."""
        self.folders.set_aside(topic, partition, why)
        self._forget((topic, partition))

    def mark_deleted(self, topic: str, partition: int, log: PartitionLog | None = None) -> str:
        """Close the log and rename its folder; `folders.delete` removes the files. Returns the new name."""
        log = log or self.logs.get((topic, partition))
        try:
            self.claim()
            if log is not None:
                log.close(clean=False)
            return self.folders.mark_deleted(topic, partition, log.topic_id if log is not None else None)
        finally:
            self._forget((topic, partition))

    def _forget(self, key: TopicPartition) -> None:
        self.logs.pop(key, None)
        self.folders.forget(key)
        self.checkpoints.forget(key)
        self._unrecovered.discard(key)
        self._promised.pop(key, None)

    # -- logs

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
        path = self.folders.path_of(topic, partition)
        is_made = not self.folders.holds(topic, partition) and not self.disk.exists(path)
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
                recovery_point=self.checkpoints.recovery_points.get(key, 0),
                log_start_offset=self.checkpoints.log_starts.get(key, 0),
                high_watermark=self.checkpoints.high_watermarks.get(key, 0),
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
        return not config.compact and key not in self.checkpoints.cleaner_offsets

    def _adopt(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        log.keeper = self.checkpoints
        log.files.deletion.durable_start_offset = self.checkpoints.log_starts.get(key, 0)
        self.logs[key] = log
        self.folders.add(key)
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
            path=self.folders.path_of(topic, partition),
            config=config,
            recovery_point=self.checkpoints.recovery_points.get(key, 0),
            log_start_offset=self.checkpoints.log_starts.get(key, 0),
            producer_id_expiration_ms=producer_id_expiration_ms,
            now_ms=now_ms,
            dense=self._is_dense(key, config),
        )

    def recovered(self, topic: str, partition: int, log_end_offset: int) -> None:
        """Record that the log is as after a clean stop, and durable up to its end."""
        self.checkpoints.note_durable_end(topic, partition, log_end_offset)
        self._unrecovered.discard((topic, partition))

    # -- copies that become logs of this directory

    def adopt_future(self, future: PartitionLog, log: PartitionLog) -> None:
        """Replace `log` by the copy: see PartitionLog.take_over."""
        self.claim()
        future.take_over(log, self.folders.path_of(log.topic, log.partition))
        self.folders.release_future(log.topic, log.partition)
        self._adopt(future)

    def promote_future(self, topic: str, partition: int) -> None:
        """Make the copy the partition's log when the node starts: the copy had replaced the log, or was about to, and
        the log is gone."""
        self.folders.promote_future(topic, partition)
        self._unrecovered.add((topic, partition))

    def release_future(self, topic: str, partition: int) -> str:
        """Give up the copy. Returns its folder's name; call `folders.doom` with it as soon as no worker writes to the
        folder."""
        self._forget((topic, partition))
        return self.folders.release_future(topic, partition)

    def usage(self) -> tuple[int, int]:
        """Return the total and the usable bytes of the volume. Raises StorageError."""
        try:
            return self.disk.usage(self.path)
        except OSError as error:
            raise self._failed(error) from error
