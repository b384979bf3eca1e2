"""A log directory through clean and unclean stops, damage, deletion, strays."""

from __future__ import annotations

import pytest

from pykbroker_log.deletion import delete_files
from pykbroker_log.disk import read_file, write_new
from pykbroker_log.log_config import LogConfig, StorageError
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import InconsistentTopicId, PartitionLog
from testkit.logs.helpers import NOW, TOPIC_ID, append, values

ID = b"d" * 16


def open_dir(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk, "data", ID, NOW)


def open_log(log_dir: LogDir, partition: int = 0, config: LogConfig | None = None) -> PartitionLog:
    return log_dir.open_log("t", partition, TOPIC_ID, config or LogConfig(), NOW)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    return disk


def test_clean_stop(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    log = open_log(log_dir)
    append(log, b"a", b"b")
    append(log, b"c")
    log.delete_records_before(1)
    log_dir.close(clean=True, broker_epoch=14)
    after = disk.power_loss()
    assert read_file(after, "data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":14}'
    assert read_file(after, "data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 3\n"
    assert read_file(after, "data/log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    assert read_file(after, "data/replication-offset-checkpoint") == b"0\n1\nt 0 3\n"
    again = open_dir(after)
    assert again.sign.was_clean
    assert again.sign.broker_epoch == 14
    assert after.exists("data/.kafka_cleanshutdown")
    assert again.folders.holds("t", 0)
    log = open_log(again)
    assert log.recovery is None
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 3, 3)


def test_killed(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    append(open_log(log_dir), b"a")
    again = open_dir(disk.power_loss(Survive.EVERYTHING))
    assert not again.sign.was_clean
    log = open_log(again)
    assert log.recovery == "checked 1 batches in 1 segments from offset 0"
    assert values(log) == {0: b"a"}


def test_no_clean_mark_while_a_folder_was_not_recovered(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    for partition in range(2):
        append(open_log(log_dir, partition), b"a")
    second = disk.power_loss(Survive.EVERYTHING)
    log_dir = open_dir(second)
    open_log(log_dir, 0)
    log_dir.close(clean=True)
    third = second.power_loss(Survive.EVERYTHING)
    log_dir = open_dir(third)
    assert not log_dir.sign.was_clean
    assert open_log(log_dir, 1).recovery is not None
    open_log(log_dir, 0)
    log_dir.close(clean=True)
    assert open_dir(third.power_loss()).sign.was_clean


def test_checkpoints_keep_what_was_not_opened(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    for partition in range(2):
        append(open_log(log_dir, partition), b"a")
    log_dir.close(clean=True)
    log_dir = open_dir(disk)
    open_log(log_dir, 0)
    log_dir.checkpoints.write_all()
    assert read_file(disk, "data/recovery-point-offset-checkpoint") == b"0\n2\nt 0 1\nt 1 1\n"
    log_dir.mark_deleted("t", 1)
    log_dir.checkpoints.write_all()
    assert read_file(disk, "data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 1\n"


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"],
)
def test_a_malformed_checkpoint_is_set_aside(disk: MemoryDisk, name: str) -> None:
    log_dir = open_dir(disk)
    append(open_log(log_dir), b"a")
    log_dir.close(clean=True)
    write_new(disk, f"data/{name}", b"garbage")
    log = open_log(open_dir(disk))
    assert values(log) == {0: b"a"}
    assert disk.exists(f"data/{name}.corrupt-{NOW}")


def test_damaged_side_files_are_rebuilt(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    log = open_log(log_dir)
    append(log, b"a", epoch=3)
    append(log, b"b", epoch=5)
    log_dir.close(clean=True)
    write_new(disk, "data/t-0/leader-epoch-checkpoint", b"0\n2\n3 x\n")
    write_new(disk, "data/t-0/partition.metadata", b"version: 0\n")
    write_new(disk, "data/t-0/00000000000000000002.snapshot", b"??")
    disk.unlink("data/t-0/00000000000000000000.index")
    log = open_log(open_dir(disk))
    assert values(log) == {0: b"a", 1: b"b"}
    assert log.epochs.entries() == [(3, 0), (5, 1)]
    assert log.recovery is not None
    assert "rebuilt leader-epoch-checkpoint" in log.recovery


def test_another_topics_folder(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    open_log(log_dir)
    log_dir.close(clean=True)
    log_dir = open_dir(disk)
    with pytest.raises(InconsistentTopicId):
        log_dir.open_log("t", 0, bytes(16), LogConfig(), NOW)
    log_dir.set_strays_aside(lambda topic, partition, topic_id: topic_id != TOPIC_ID)
    assert not log_dir.folders.holds("t", 0)
    assert f"t-0.{TOPIC_ID.hex()}-stray" in disk.list("data")


def test_deletion_in_two_steps(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    log = open_log(log_dir)
    append(log, b"a")
    first = log_dir.mark_deleted("t", 0, log)
    assert disk.list(f"data/{first}")
    assert not log_dir.folders.holds("t", 0)
    log = open_log(log_dir)
    assert log.log_end_offset == 0
    second = log_dir.mark_deleted("t", 0, log)
    assert sorted(log_dir.folders.leftovers) == sorted([first, second])
    log_dir.close(clean=True)
    log_dir = open_dir(disk)
    assert len(log_dir.folders.leftovers) == 2
    for name in log_dir.folders.leftovers:
        log_dir.folders.delete(name)
    log_dir.folders.delete(first)
    assert not [name for name in disk.list("data") if name.startswith("t-0")]


def test_retention_waits_for_the_checkpoint_and_the_delay(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    config = LogConfig(segment_bytes=100, retention_bytes=250, file_delete_delay_ms=1000)
    log = open_log(log_dir, config=config)
    for _ in range(5):
        append(log, b"x" * 20)
    log.set_high_watermark(3)
    assert log.retire(NOW) == 2
    assert log.log_start_offset == log.local_log_start_offset == 2
    assert disk.exists("data/t-0/00000000000000000000.log")
    # After a crash now the names are still there, the log start is not durable, and all records come back.
    assert values(open_log(open_dir(disk.power_loss(Survive.EVERYTHING)), config=config)).keys() == {0, 1, 2, 3, 4}
    log_dir.checkpoints.write_all()
    assert open_log(open_dir(disk.power_loss(Survive.EVERYTHING)), config=config).log_start_offset == 2
    assert log.files.deletion.is_due(NOW)
    assert not log.purge(NOW)
    assert disk.exists("data/t-0/00000000000000000000.log.deleted")
    assert not log.files.deletion.is_due(NOW + 999)
    delete_files(disk, log.purge(NOW + 1000))
    assert not [name for name in disk.list("data/t-0") if name.endswith(".deleted")]
    assert values(log).keys() == {2, 3, 4}


def test_offline(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    append(open_log(log_dir), b"a")
    disk.fail_next("rename", count=None)
    with pytest.raises(StorageError) as error:
        log_dir.checkpoints.write_all()
    assert error.value.log_dir == "data"
    log_dir.take_offline()
    log_dir.close(clean=True)
    disk.heal()
    assert not disk.exists("data/.kafka_cleanshutdown")
    assert values(open_log(open_dir(disk))) == {0: b"a"}


def test_the_lock(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    with pytest.raises(OSError):
        open_dir(disk)
    log_dir.close(clean=True)
    open_dir(disk).close(clean=True)


def test_foreign_names_are_left_alone(disk: MemoryDisk) -> None:
    disk.make_dirs("data/foo")
    disk.make_dirs("data/lost+found")
    disk.make_dirs("data/__cluster_metadata-0")
    log_dir = open_dir(disk)
    assert log_dir.folders.all() == []
    log_dir.set_strays_aside(lambda *_: False)
    assert disk.exists("data/foo")
    assert disk.exists("data/__cluster_metadata-0")


def test_a_truncation_lowers_the_recovery_point_on_disk_first(disk: MemoryDisk) -> None:
    log_dir = open_dir(disk)
    log = open_log(log_dir)
    for _ in range(5):
        append(log, b"x")
    log.flush()
    log_dir.checkpoints.write_all()
    stale = log_dir.checkpoints.prepare_recovery_points()  # a periodic write that a thread has not got to yet
    log.truncate_to(2)
    assert read_file(disk, "data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"
    stale()
    assert read_file(disk, "data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"
