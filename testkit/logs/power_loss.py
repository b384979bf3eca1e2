"""A log that is written at random on a disk that records each call, and its start after a loss of power.

The workload appends as several idempotent producers, rolls, flushes, checkpoints, truncates, deletes from the front,
retires segments and stops cleanly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pykbroker.runtime.workers import finish
from pykbroker_log.deletion import delete_files
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery_job import recover
from testkit.logs.helpers import NOW, TOPIC_ID, batch
from testkit.logs.recording import RecordedLog

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=200, retention_bytes=3000, retention_ms=-1, file_delete_delay_ms=0
)
DIRECTORY_ID = b"d" * 16


@dataclass
class Workload(RecordedLog[bytes]):
    epoch: int = 0

    def operations(self) -> Mapping[Callable[[], None], int]:
        """The operations, and how often each is done."""
        return {
            self.append: 50, self.flush: 6, self.checkpoint: 5, self.roll: 4, self.truncate: 3,
            self.delete_records: 3, self.retire: 4, self.new_epoch: 3, self.restart: 2,
        }  # fmt: skip

    def run(self, steps: int) -> None:
        self.open()
        self.moment(0)
        operations = self.operations()
        for _ in range(steps):
            self.now += 10
            (operation,) = self.rng.choices(list(operations), list(operations.values()))
            operation()

    def open(self) -> None:
        self.dir = LogDir.open(self.disk, "data", DIRECTORY_ID, self.now)
        self.log = self.dir.open_log("t", 0, TOPIC_ID, CONFIG, self.now)

    def append(self) -> None:
        begun = len(self.disk.calls)
        pid = self.rng.randrange(4)
        count = self.rng.randrange(1, 4)
        seq = self.sequences.get(pid, 0)
        offset = self.log.log_end_offset
        data = [
            b"%d/%d/%d" % (self.seed, offset + i, len(self.disk.calls)) + b"x" * self.rng.randrange(60)
            for i in range(count)
        ]
        if pid == 3:
            made = batch(*data, timestamp=self.now)
        else:
            made = batch(*data, timestamp=self.now + self.rng.randrange(-50, 50), pid=pid, epoch=0, seq=seq)
            self.sequences[pid] = seq + count
        self.log.append_as_leader(made, leader_epoch=self.epoch, now_ms=self.now)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.records.update({offset + i: value for i, value in enumerate(data)})
        self.moment(begun)

    def checkpoint(self) -> None:
        begun = len(self.disk.calls)
        self.dir.checkpoints.write_all()
        self.purge()
        self.moment(begun)

    def new_epoch(self) -> None:
        begun = len(self.disk.calls)
        self.epoch += 1
        self.log.assign_epoch_start(self.epoch, self.log.log_end_offset)
        self.moment(begun)

    def truncate(self) -> None:
        log = self.log
        begun = len(self.disk.calls)
        target = self.rng.randrange(log.log_start_offset, log.log_end_offset + 1)
        # A crash during the truncation may leave the old log or the new one.
        self.promised = min(self.promised, target)
        log.truncate_to(target)
        self.promised = min(self.promised, log.log_end_offset)
        self.records = {offset: value for offset, value in self.records.items() if offset < log.log_end_offset}
        self.forget_sequences()
        self.moment(begun, forget=True)

    def delete_records(self) -> None:
        begun = len(self.disk.calls)
        log = self.log
        log.delete_records_before(self.rng.randrange(log.log_start_offset, log.high_watermark + 1))
        self.moment(begun)

    def retire(self) -> None:
        begun = len(self.disk.calls)
        self.log.retire(self.now)
        self.purge()
        self.moment(begun)

    def purge(self) -> None:
        """Rename files as soon as allowed, and delete them."""
        delete_files(self.disk, self.log.purge(self.now))

    def restart(self) -> None:
        begun = len(self.disk.calls)
        self.dir.close(clean=True)
        self.promised = self.log.log_end_offset
        self.moment(begun)
        begun = len(self.disk.calls)
        end = self.log.log_end_offset
        self.open()
        assert self.dir.sign.was_clean
        assert self.log.recovery is None
        assert self.log.log_end_offset == end
        self.moment(begun)


def start_directory(disk: MemoryDisk, *, apart: bool = False) -> tuple[LogDir, PartitionLog] | None:
    """With `apart`, the job of a worker process recovers the log, which is then opened as after a clean stop."""
    if not disk.exists("data"):
        return None
    log_dir = LogDir.open(disk, "data", DIRECTORY_ID, NOW)
    if apart and log_dir.is_unrecovered("t", 0):
        recover_apart(log_dir)
    log = log_dir.open_log("t", 0, TOPIC_ID, CONFIG, NOW)
    assert not (apart and log.recovery), log.recovery
    return log_dir, log


def recover_apart(log_dir: LogDir) -> None:
    unrecovered = log_dir.unrecovered("t", 0, CONFIG, NOW, producer_id_expiration_ms=DEFAULT_EXPIRATION_MS)
    (recovered,) = finish(recover, log_dir.disk, [unrecovered])
    log_dir.recovered("t", 0, recovered.log_end_offset)
