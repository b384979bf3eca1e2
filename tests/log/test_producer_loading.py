"""The producers are restored from a snapshot and the batches after it, without opening a log."""

from __future__ import annotations

from pykbroker_log import names
from pykbroker_log.disk import read_file
from pykbroker_log.log_config import LogConfig
from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.producer_loading import ProducerLoader
from pykbroker_log.producers import ProducerStates
from testkit.logs.helpers import NOW, batch, open_log

PATH = "data/t-0"


def written(disk: MemoryDisk) -> PartitionLog:
    """Return a log with a segment, and with a snapshot at the end, for each of three batches."""
    log = open_log(disk, config=LogConfig(segment_bytes=1 << 20))
    for seq in range(3):
        log.append_as_leader(bytearray(batch(b"v", pid=7, epoch=0, seq=seq)), leader_epoch=0, now_ms=NOW)
        log.roll(NOW)
    assert log.files.side.snapshots == (1, 2, 3)
    return log


def loader(log: PartitionLog, snapshots: tuple[int, ...], *, log_start_offset: int = 0) -> ProducerLoader:
    return ProducerLoader(
        log.files.disk,
        PATH,
        ProducerStates(),
        now_ms=NOW,
        log_start_offset=log_start_offset,
        snapshots=snapshots,
    )


def restored(made: ProducerLoader, log: PartitionLog) -> list[int]:
    made.load(log.files.segments, 3)
    made.catch_up(log.files.segments, 3)
    return [kept.last_offset for kept in made.states.entries[7].batches]


def test_a_snapshot_saves_the_batches_before_it() -> None:
    log = written(MemoryDisk())
    assert restored(loader(log, (1, 2)), log) == [1, 2]
    assert restored(loader(log, (3,)), log) == [2]
    assert restored(loader(log, ()), log) == [0, 1, 2]


def test_a_snapshot_that_is_lost_is_written_again() -> None:
    disk = MemoryDisk()
    log = written(disk)
    path = f"{PATH}/{names.segment_file(3, names.SNAPSHOT)}"
    before = read_file(disk, path)
    disk.unlink(path)
    made = loader(log, (1, 2))
    restored(made, log)
    assert made.snapshots == [1, 2, 3]
    assert made.rewritten == {3}
    assert read_file(disk, path) == before


def test_a_damaged_snapshot_is_dropped_for_the_one_before_it() -> None:
    disk = MemoryDisk()
    log = written(disk)
    disk.open(f"{PATH}/{names.segment_file(2, names.SNAPSHOT)}").pwritev((b"\xff",), 8)
    made = loader(log, (1, 2))
    assert restored(made, log) == [0, 1, 2]
    (warning,) = made.warnings
    assert "at offset 2 cannot be used" in warning
    # It is written again from the batches before it.
    assert made.rewritten == {2, 3}


def test_snapshots_without_a_segment_go() -> None:
    disk = MemoryDisk()
    log = written(disk)
    made = loader(log, (1, 2, 3), log_start_offset=2)
    made.drop_strays(log.files.segments[2:], 3)
    assert made.snapshots == [2, 3]
    assert not disk.exists(f"{PATH}/{names.segment_file(1, names.SNAPSHOT)}")
    made.rewritten.add(3)
    made.drop_after(1)
    assert made.snapshots == [3]
