"""The offset checkpoints of one log directory: four files, each with one offset per partition.

Responsible for what the files contain, for writing them, and for lowering them before a truncation. Not responsible for
when they are written (`pykbroker/storage/upkeep.py`), nor for the format of a file (checkpoints.py).

Invariants:
* The entries of partitions that were not opened in this run stay.
* A recovery point in the file is never beyond what is on disk: it is lowered there before a log is truncated.
* A malformed file is set aside and begins empty; it costs a scan, but the start goes on.
* A write that began earlier never replaces the contents of a later one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pykbroker_log import names
from pykbroker_log.checkpoints import MalformedFile, TopicPartition, decode_offsets, encode_offsets
from pykbroker_log.disk import Disk, read_file, write_atomic
from pykbroker_log.log_config import StorageError
from pykbroker_log.log_loading import set_aside

if TYPE_CHECKING:
    from pykbroker_log.clean_shutdown import CleanShutdown
    from pykbroker_log.partition_log import PartitionLog


class OffsetCheckpoints:
    """The keeper of the logs of one directory (`partition_log.py`). Each `prepare_*` collects the offsets on the
    caller's thread. It returns the write, which fsyncs, may run on a thread and raises StorageError."""

    __slots__ = (
        "_contents",
        "_disk",
        "_logs",
        "_path",
        "_sign",
        "cleaner_offsets",
        "high_watermarks",
        "log_starts",
        "recovery_points",
    )

    def __init__(self, disk: Disk, path: str, sign: CleanShutdown, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """`sign` is the clean shutdown file of the directory, and `logs` are its open logs, now and later."""
        self._disk = disk
        self._path = path
        self._sign = sign
        self._logs = logs
        # The newest contents of each file, with a number that grows.
        self._contents: dict[str, tuple[int, bytes]] = {}
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: The offset up to which each log was compacted. If compaction is turned off, the entry stays, because the gaps
        #: stay.
        self.cleaner_offsets: dict[TopicPartition, int] = {}

    def read(self, now_ms: int) -> None:
        """Read the files of the last run. Raises OSError."""
        self.recovery_points = self._read(names.RECOVERY_POINTS, now_ms)
        self.log_starts = self._read(names.LOG_START_OFFSETS, now_ms)
        self.high_watermarks = self._read(names.HIGH_WATERMARKS, now_ms)
        self.cleaner_offsets = self._read(names.CLEANER_OFFSETS, now_ms)

    def _read(self, name: str, now_ms: int) -> dict[TopicPartition, int]:
        path = f"{self._path}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            return decode_offsets(read_file(self._disk, path))
        except MalformedFile as error:
            set_aside(self._disk, path, now_ms, str(error))
            return {}

    def promised_end(self, key: TopicPartition) -> int:
        """Return the offset that the log of an earlier run had at least reached."""
        return max(self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0))

    def durable_end(self, topic: str, partition: int) -> int:
        """Return the offset up to which the partition's log or copy is known to be durable."""
        return self.recovery_points.get((topic, partition), 0)

    def note_durable_end(self, topic: str, partition: int, offset: int) -> None:
        self.recovery_points[topic, partition] = offset

    def forget(self, key: TopicPartition) -> None:
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets):
            offsets.pop(key, None)

    def write_all(self) -> None:
        """Write all files. Raises StorageError."""
        for write in self.prepare_all():
            write()

    def prepare_all(self) -> list[Callable[[], None]]:
        writes = [self.prepare_recovery_points(), self.prepare_log_start_offsets(), self.prepare_high_watermarks()]
        return [*writes, self.prepare_cleaner_offsets()] if self.cleaner_offsets else writes

    def prepare_recovery_points(self) -> Callable[[], None]:
        self.recovery_points.update(self._of_logs(lambda log: log.recovery_point))
        return self._writer(names.RECOVERY_POINTS, self.recovery_points)

    def prepare_high_watermarks(self) -> Callable[[], None]:
        self.high_watermarks.update(self._of_logs(lambda log: log.high_watermark))
        return self._writer(names.HIGH_WATERMARKS, self.high_watermarks)

    def prepare_cleaner_offsets(self) -> Callable[[], None]:
        return self._writer(names.CLEANER_OFFSETS, self.cleaner_offsets)

    def cleaner_offset(self, log: PartitionLog) -> int | None:
        """Return the offset up to which the log has been compacted, or None if it never was."""
        return self.cleaner_offsets.get((log.topic, log.partition))

    def set_cleaner_offset(self, log: PartitionLog, offset: int) -> None:
        """Record that the log may have gaps from now on. The next write of the cleaner offsets makes it durable."""
        self.cleaner_offsets[log.topic, log.partition] = offset
        log.files.segments.is_gapless = False

    def prepare_log_start_offsets(self) -> Callable[[], None]:
        covered = [(log, log.log_start_offset) for log in self._logs.values()]
        for log, start in covered:
            key = (log.topic, log.partition)
            # The start of a tiered log cannot be found from its segments.
            is_needed = log.config.is_tiered or start > log.files.first_stored_offset
            if is_needed or (key in self.log_starts and not log.files.is_closed):
                # An entry stays, even if the first segment begins at the same offset: until a clean stop has fsynced
                # the folder, a power loss may bring back deleted files of segments before that offset.
                self.log_starts[key] = start
            else:
                self.log_starts.pop(key, None)
        write = self._writer(names.LOG_START_OFFSETS, self.log_starts)

        def write_and_tell() -> None:
            write()
            for log, start in covered:
                log.files.deletion.durable_start_offset = start

        return write_and_tell

    def _of_logs(self, value: Callable[[PartitionLog], int]) -> dict[TopicPartition, int]:
        return {key: value(log) for key, log in self._logs.items()}

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
                    self._sign.claim()
                    if not self._disk.exists(f"{self._path}/{names.LOCK}"):
                        # The volume was unmounted: open files still accept writes, and the broker would not notice.
                        raise FileNotFoundError(errno.ENOENT, "the log directory has gone", self._path)
                    write_atomic(self._disk, f"{self._path}/{name}", data, suffix=f".{generation}.tmp")
                except OSError as error:
                    raise StorageError(self._path, error) from error
                if self._contents[name][0] == at:
                    return

        return write

    def before_truncation(self, log: PartitionLog) -> list[Callable[[], None]]:
        """Return the writes that the thread of a truncation does before it changes the log (partition_log.py)."""
        key = (log.topic, log.partition)
        writes: list[Callable[[], None]] = []
        if log.recovery_point < self.recovery_points.get(key, 0):
            writes.append(self.prepare_recovery_points())
        start, noted = log.log_start_offset, self.log_starts.get(key, 0)
        if start < noted or (start > noted and start > log.files.first_stored_offset):
            writes.append(self.prepare_log_start_offsets())
        if log.recovery_point < self.cleaner_offsets.get(key, 0):
            # Records that are appended there later have not been cleaned.
            self.set_cleaner_offset(log, log.recovery_point)
            writes.append(self.prepare_cleaner_offsets())
        return writes
