"""The two starts of a tiered log: where it begins for its readers, and where its local segments begin (KIP-405)."""

from __future__ import annotations

import pytest

from pykbroker_log.disk import read_file
from pykbroker_log.log_config import LogConfig
from pykbroker_log.log_dirs import LogDir
from pykbroker_log.memory_disk import MemoryDisk, Survive
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode, KafkaError
from testkit.logs.helpers import NOW, TOPIC_ID, append, batch, values

TIERED = LogConfig(segment_bytes=200, remote_storage_enable=True)
CHECKPOINT = "data/log-start-offset-checkpoint"


def restart(disk: MemoryDisk, config: LogConfig = TIERED) -> tuple[LogDir, PartitionLog]:
    log_dir = LogDir.open(disk, "data", b"d" * 16, NOW)
    return log_dir, log_dir.open_log("t", 0, TOPIC_ID, config, NOW)


def starts(log: PartitionLog) -> tuple[int, int]:
    return log.log_start_offset, log.local_log_start_offset


@pytest.fixture
def disk() -> MemoryDisk:
    """The files that Apache Kafka leaves of a tiered log whose records 0 to 9 are only in the remote tier. Records 10
    to 15 are in local segments, epoch 3 begins at offset 2, and the log starts at 2."""
    disk = MemoryDisk()
    disk.make_dirs("data")
    disk.fsync_dir(".")
    log_dir, log = restart(disk, LogConfig(segment_bytes=200))
    log.truncate_fully_and_start_at(10)
    for number in range(6):
        log.append_as_leader(batch(b"%d" % number * 30), leader_epoch=3, now_ms=NOW)
    log.set_high_watermark(16)
    log_dir.close(clean=True)
    disk.unlink("data/t-0/leader-epoch-checkpoint")
    for path, text in ((CHECKPOINT, b"0\n1\nt 0 2\n"), ("data/t-0/leader-epoch-checkpoint", b"0\n1\n3 2\n")):
        file = disk.open(path, create=True)
        file.truncate(0)
        file.pwritev([text], 0)
        file.fsync()
        file.close()
    for folder in ("data", "data/t-0"):
        disk.fsync_dir(folder)
    return disk


def test_the_start_of_a_tiered_log_survives_restarts(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    """The start jumped to the first local segment, and readers lost the records in the remote tier."""
    for clean in (True, False, True):
        log_dir, log = restart(disk)
        assert (starts(log), log.epochs.entries()) == ((2, 10), [(3, 2)])
        assert sorted(values_from(log, 10)) == list(range(10, log.log_end_offset))
        append(log, b"x" * 30, epoch=3)
        if clean:
            log_dir.close(clean=True)
        else:
            log.flush()
            log_dir.checkpoints.write_all()
            disk = disk.power_loss(Survive.NOTHING)
        assert read_file(disk, CHECKPOINT) == b"0\n1\nt 0 2\n"
    assert not [record.message for record in caplog.records if "missing" in record.message]


def values_from(log: PartitionLog, offset: int) -> list[int]:
    found = []
    while offset < log.log_end_offset:
        found.append(offset)
        offset = log.read(offset, 1, log.log_end_offset).next_offset
    return found


def test_a_log_that_starts_at_zero_is_noted_too(disk: MemoryDisk) -> None:
    """Apache Kafka records the start of each tiered log, because no segment shows it."""
    disk.unlink(CHECKPOINT)
    log_dir, log = restart(disk)
    assert starts(log) == (0, 10)
    log_dir.close(clean=True)
    assert read_file(disk, CHECKPOINT) == b"0\n1\nt 0 0\n"


def test_a_log_without_tiers_starts_at_its_first_segment(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    """The same files are a log that has lost its first segments, if the topic has no tiers."""
    _, log = restart(disk, LogConfig(segment_bytes=200))
    assert starts(log) == (10, 10)
    assert sorted(values(log)) == list(range(10, 16))
    (warning,) = [record.message for record in caplog.records if "missing" in record.message]
    assert "the records from offset 2 to 9 are missing" in warning


def test_a_compacted_log_has_no_tiers() -> None:
    assert not LogConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact"})).is_tiered
    assert LogConfig.from_topic({"remote.storage.enable": True}).is_tiered


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
        (9, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
        (17, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_is_not_in_a_local_segment_is_refused(disk: MemoryDisk, offset: int, code: ErrorCode) -> None:
    _, log = restart(disk)
    with pytest.raises(KafkaError) as refused:
        log.read(offset, 1_000, 16)
    assert refused.value.code == code


def test_deleting_records_moves_the_start_and_then_both(disk: MemoryDisk) -> None:
    _, log = restart(disk)
    log.set_high_watermark(16)
    log.delete_records_before(5)
    assert starts(log) == (5, 10)
    log.delete_records_before(12)
    assert starts(log) == (12, 12)


def test_retention_takes_nothing_local_of_which_no_copy_is_known(disk: MemoryDisk) -> None:
    config = LogConfig(segment_bytes=200, remote_storage_enable=True, retention_ms=1, retention_bytes=0)
    _, log = restart(disk, config)
    log.set_high_watermark(16)
    assert (log.retire(NOW + 10**9), starts(log)) == (0, (2, 10))
    log.delete_records_before(14)
    assert log.retire(NOW + 10**9) > 0
    assert starts(log) == (14, 14)
