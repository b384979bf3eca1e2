"""Every prefix of a recorded workload loses power; after each, recovery gives a legal prefix with nothing promised
lost.

The workload appends as several idempotent producers, rolls, flushes, checkpoints, truncates, deletes from the front,
retires segments and stops cleanly. What is promised: a record that was in the log when a flush began that
completed, and was neither truncated nor deleted since. What is legal: the state of the log at some moment before
the crash, cut at a batch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pykbroker.workers import finish
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producers import DEFAULT_EXPIRATION_MS
from pykbroker_log.recovery import recover
from tests.log.helpers import NOW, TOPIC_ID, batch, check_consistent, values

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=200, retention_bytes=3000, retention_ms=-1, file_delete_delay_ms=0
)
DIRECTORY_ID = b"d" * 16


@dataclass
class Moment:
    """The log as it was meant to be when an operation had been done."""

    begun: int  # calls recorded before the operation
    done: int  # calls recorded after it
    records: dict[int, bytes]
    start: int
    end: int
    promised: int  # everything in [start, promised) survives from `done` on
    forget: bool = False  # the operation is durable: older states cannot come back


@dataclass
class Workload:
    seed: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    moments: list[Moment] = field(default_factory=list)
    records: dict[int, bytes] = field(default_factory=dict)
    promised: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    now: int = NOW

    def run(self, steps: int) -> None:
        self.rng = random.Random(self.seed)
        self.disk.make_dirs("data")
        self.disk.fsync_dir(".")
        self.open()
        self.moment(0)
        operations = [
            (self.append, 50), (self.flush, 6), (self.checkpoint, 5), (self.roll, 4), (self.truncate, 3),
            (self.delete_records, 3), (self.retire, 4), (self.new_epoch, 3), (self.restart, 2),
        ]  # fmt: skip
        names, weights = zip(*operations, strict=True)
        for _ in range(steps):
            self.now += 10
            (operation,) = self.rng.choices(names, weights)
            operation()

    def open(self) -> None:
        self.dir = LogDir.open(self.disk, "data", DIRECTORY_ID, self.now)
        self.log = self.dir.open_log("t", 0, TOPIC_ID, CONFIG, self.now)

    def moment(self, begun: int, forget: bool = False) -> None:
        log = self.log
        end = log.log_end_offset
        self.promised = min(self.promised, end)
        self.moments.append(
            Moment(begun, len(self.disk.calls), dict(self.records), log.log_start_offset, end, self.promised, forget)
        )

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

    def flush(self) -> None:
        begun = len(self.disk.calls)
        self.log.flush()
        self.promised = self.log.log_end_offset
        self.moment(begun)

    def checkpoint(self) -> None:
        begun = len(self.disk.calls)
        self.dir.checkpoint()
        self.moment(begun)

    def roll(self) -> None:
        begun = len(self.disk.calls)
        self.log.roll(self.now)
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
        # A crash in the middle of it may leave the old log or the new one.
        self.promised = min(self.promised, target)
        log.truncate_to(target)
        self.promised = min(self.promised, log.log_end_offset)
        self.records = {offset: value for offset, value in self.records.items() if offset < log.log_end_offset}
        entries = log.producers.entries
        self.sequences = {pid: entries[pid].last_sequence + 1 for pid in self.sequences if pid in entries}
        self.moment(begun, forget=True)

    def delete_records(self) -> None:
        begun = len(self.disk.calls)
        log = self.log
        log.delete_records_before(self.rng.randrange(log.log_start_offset, log.high_watermark + 1))
        self.moment(begun)

    def retire(self) -> None:
        begun = len(self.disk.calls)
        self.log.retire(self.now)
        self.moment(begun)

    def restart(self) -> None:
        begun = len(self.disk.calls)
        self.dir.close(clean=True)
        self.promised = self.log.log_end_offset
        self.moment(begun)
        begun = len(self.disk.calls)
        end = self.log.log_end_offset
        self.open()
        assert self.dir.clean
        assert self.log.recovery is None
        assert self.log.log_end_offset == end
        self.moment(begun)


def start_again(disk: MemoryDisk, *, apart: bool = False) -> PartitionLog | None:
    """`apart`: recovered by the job of a worker process, then opened as after a clean stop."""
    if not disk.exists("data"):
        return None
    log_dir = LogDir.open(disk, "data", DIRECTORY_ID, NOW)
    if apart and log_dir.is_unrecovered("t", 0):
        recover_apart(log_dir)
    log = log_dir.open_log("t", 0, TOPIC_ID, CONFIG, NOW)
    assert not (apart and log.recovery), log.recovery
    return log


def recover_apart(log_dir: LogDir) -> None:
    unrecovered = log_dir.unrecovered("t", 0, CONFIG, NOW, producer_id_expiration_ms=DEFAULT_EXPIRATION_MS)
    recovered = finish(recover, log_dir.disk, unrecovered)
    log_dir.recovered("t", 0, recovered.log_end_offset)


def interrupted(disk: MemoryDisk, rng: random.Random) -> MemoryDisk:
    """The power goes again while the log is being recovered, or when that has just been checkpointed."""
    if not disk.exists("data"):
        return disk
    operation = rng.choice(["pwritev", "truncate", "rename", "unlink", "fsync", "fsync_dir", "create"])
    disk.fail_next(operation, skip=rng.randrange(6), count=None)
    try:
        log_dir = LogDir.open(disk, "data", DIRECTORY_ID, NOW)
        if log_dir.is_unrecovered("t", 0):
            recover_apart(log_dir)
            log_dir.checkpoint()
    except (OSError, StorageError):
        pass
    return disk.power_loss(rng.choice(list(Survive)), torn=rng.random() < 0.5, choose=rng.randrange)


def check(workload: Workload, calls: int, after: MemoryDisk, what: str) -> None:
    log = start_again(after, apart=calls % 2 == 1)
    past = [moment for moment in workload.moments if moment.done <= calls]
    if log is None:
        assert not past or past[-1].promised == 0, what
        return
    under_way = [moment for moment in workload.moments if moment.begun <= calls < moment.done]
    known = past[-1:]
    promised = min([moment.promised for moment in known + under_way], default=0)
    start = max([moment.start for moment in known + under_way], default=0)
    check_consistent(log, dense_from=start)
    found = values(log)
    expected = range(max(start, log.log_start_offset), log.log_end_offset)
    assert [offset for offset in found if offset >= start] == list(expected), what

    # Everything promised is there: by the last moment that is over, less what an operation under way may take.
    if known:
        for offset in range(start, promised):
            assert found.get(offset) == known[-1].records[offset], (
                f"{what}: promised record {offset} of {promised} is gone"
            )
        if promised > start:
            # A file system that reorders changes of a folder may take the first file and leave the second, as long as
            # neither was flushed. Nobody can tell that from retention.
            assert log.log_start_offset <= start, what

    # What is there was the log at some moment since the last durable cut.
    since = max([index for index, moment in enumerate(past) if moment.forget], default=0)
    candidates = past[since:] + under_way
    legal = any(
        all(moment.records.get(offset) == value for offset, value in found.items()) and log.log_end_offset <= moment.end
        for moment in candidates
    )
    assert legal or not found, f"{what}: {found} is no state that the log ever had"

    # It goes on from here, and a killed process loses nothing.
    end = log.log_end_offset
    log.append_as_leader(batch(b"after"), leader_epoch=99, now_ms=NOW)
    survived = start_again(after.power_loss(Survive.EVERYTHING))
    assert survived is not None
    assert values(survived)[end] == b"after"


# The first six, and some that found something: a torn epoch file, an index of another past, a start behind the end.
SEEDS = [*range(6), 31, 65, 76, 85, 196, 211]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_prefix(seed: int) -> None:
    lose_power_everywhere(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_prefix_of_many_workloads() -> None:
    for seed in range(6, 300):
        lose_power_everywhere(seed)


def lose_power_everywhere(seed: int) -> None:
    lose_power(Workload(seed))


def lose_power(workload: Workload) -> None:
    seed = workload.seed
    workload.run(55)
    calls = workload.disk.calls
    replayed = MemoryDisk()
    rng = random.Random(seed)
    for count in range(len(calls) + 1):
        if count:
            replayed.repeat(calls[count - 1])
        # In full for a third of the seeds, else one way of losing power per prefix.
        modes = ["nothing", "everything", "nothing torn", "everything torn", "chosen", "chosen"]
        for mode in modes if seed % 3 == 0 else [rng.choice(modes)]:
            survive = Survive(mode.split()[0])
            after = replayed.power_loss(survive, torn=mode.endswith("torn"), choose=rng.randrange)
            if rng.random() < 0.3:
                after = interrupted(after, rng)
            last = calls[count - 1] if count else None
            check(
                workload,
                count,
                after,
                f"seed {seed}, {count} calls, {mode}, last {last and (last.operation, last.path)}",
            )


def test_a_killed_process_loses_nothing() -> None:
    workload = Workload(100)
    workload.run(40)
    log = start_again(workload.disk.power_loss(Survive.EVERYTHING))
    assert log is not None
    assert values(log) == {o: v for o, v in workload.records.items() if o >= log.log_start_offset}
    assert log.log_end_offset == workload.log.log_end_offset
