"""Reads: Kafka's rules, slices that survive their file, and rolling."""

from __future__ import annotations

import pathlib

import pytest

from pykbroker_log.index import SortedIndex
from pykbroker_log.log_config import LogConfig
from pykbroker_log.offset_index import OffsetIndex
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.time_index import TimeIndex
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.records.batch import build_batch
from testkit.logs.helpers import NOW, append, batch, check_consistent, open_log, read_all, values


def test_a_fetch_in_the_middle_of_a_batch_returns_the_batch() -> None:
    log = open_log()
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    result = log.read(1, 1 << 20, 4)
    assert (result.first_offset, result.next_offset) == (0, 4)
    size = result.size
    assert log.read(1, size - 1, 4).next_offset == 3
    assert log.read(1, 1, 4).next_offset == 3
    assert log.read(1, 1, 4, min_one=False).size == 0
    assert log.read(1, 1 << 20, 3).next_offset == 3
    assert log.read(1, 1 << 20, 2).size == 0  # the bound lies inside the batch


def test_regions_survive_deletion(tmp_path: pathlib.Path) -> None:
    log = open_log(OsDisk(), path=f"{tmp_path}/t-0", config=LogConfig(segment_bytes=400_000, file_delete_delay_ms=0))
    for index in range(10):
        append(log, bytes([index]) * 100_000)
    slices = [log.read(offset, 100_500, log.high_watermark, regions=True).slices[0] for offset in range(10)]
    regions = [part for part in slices if not isinstance(part, bytes)]
    assert len(regions) == 10
    assert isinstance(log.read(0, 1, 10).slices[0], bytes)
    above = open_log(OsDisk(), path=f"{tmp_path}/u-0")
    above.append_as_leader(batch(b"x" * 100_000), leader_epoch=0, now_ms=NOW)
    # Records above the high watermark may be cut off.
    assert isinstance(above.read(0, 1 << 20, 1, regions=True).slices[0], bytes)
    log.delete_records_before(10)
    assert log.retire(NOW) == 3
    log.close(clean=False)
    log.delete_files()
    assert [part.pread(1, len(part) - 200) for part in regions] == [bytes([index]) for index in range(10)]


def test_a_corrupt_header_is_said_so(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    log = open_log(disk, path=f"{tmp_path}/t-0")
    for index in range(3):
        append(log, b"%d" % index)
    size = log.size_bytes // 3
    disk.open(f"{tmp_path}/t-0/00000000000000000000.log").pwritev([b"\x07"], size + 16)
    with pytest.raises(KafkaError) as error:
        log.read(2, 100, 3)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_follower_refuses_what_does_not_follow() -> None:
    log = open_log()
    append(log, b"a")
    made = build_batch([(None, b"b", (), NOW)], base_offset=0)
    with pytest.raises(KafkaError):
        log.append_as_follower(made)
    damaged = bytearray(build_batch([(None, b"b", (), NOW)], base_offset=1))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        log.append_as_follower(damaged)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.append_as_follower(b"").record_count == 0
    assert values(log) == {0: b"a"}


def test_rolls_by_time_size_and_index() -> None:
    log = open_log(config=LogConfig(segment_ms=1000))
    append(log, b"a", timestamp=NOW)
    append(log, b"b", timestamp=NOW + 1000)
    assert len(log.files.segments) == 1
    append(log, b"c", timestamp=NOW + 1001)
    assert len(log.files.segments) == 2
    log = open_log(config=LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    for _ in range(11):
        append(log, b"a")
    assert len(log.files.segments) == 3
    check_consistent(log)
    with pytest.raises(KafkaError) as error:
        append(open_log(config=LogConfig(segment_bytes=100)), b"x" * 100)
    assert error.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_offsets_beyond_the_range_of_a_segment_roll() -> None:
    log = open_log()
    append(log, b"a")
    far = 2**31 + 5
    log.append_as_follower(build_batch([(None, b"b", (), NOW)], base_offset=far, leader_epoch=0))
    assert len(log.files.segments) == 2
    assert [header.base_offset for header, _ in read_all(log)] == [0, far]


def test_an_index_that_kafka_preallocated(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    for cls, count in ((OffsetIndex, 700), (TimeIndex, 0), (TimeIndex, 1), (OffsetIndex, 512)):
        path = f"{tmp_path}/{cls.__name__}{count}"
        data = b"".join(cls.ENTRY.pack(index * 3 + 2, index * 10 + 1) for index in range(count))
        disk.open(path, create=True).pwritev([data + bytes(cls.ENTRY.size * 1000)], 0)
        index: SortedIndex = cls(disk, path, 0)
        assert len(index) == count
        assert index.floor(1) == -1
        for probe in range(0, count, 37):
            assert index.floor(probe * 3 + 2) == index.floor(probe * 3 + 4) == probe
            assert index.floor(probe * 10 + 1, by_value=True) == probe
        index.add(count * 3 + 2, count * 10 + 1)
        index.write_pending()
        assert cls(disk, path, 0).entry(count) == (count * 3 + 2, count * 10 + 1)
        index.keep(count // 2)
        assert disk.open(path).size() == count // 2 * cls.ENTRY.size


def test_flush_due() -> None:
    log = open_log(config=LogConfig(flush_messages=3, flush_ms=1000))
    assert not log.flush_due(NOW)
    append(log, b"a", b"b")
    assert not log.flush_due(NOW)
    append(log, b"c")
    assert log.flush_due(NOW)
    log.flush()
    assert log.recovery_point == 3
    append(log, b"d")
    assert not log.flush_due(NOW + 500)
    assert log.flush_due(NOW + 1000)


def test_preallocate(tmp_path: pathlib.Path) -> None:
    disk = OsDisk()
    config = LogConfig(preallocate=True, segment_bytes=4096)
    log = open_log(disk, path=f"{tmp_path}/t-0", config=config)
    for _ in range(3):
        append(log, b"x" * 1500)
    first, second = f"{tmp_path}/t-0/00000000000000000000.log", f"{tmp_path}/t-0/00000000000000000002.log"
    assert disk.open(second).size() == 4096
    assert disk.open(first).size() < 4096
    log.close(clean=False)
    log = open_log(disk, path=f"{tmp_path}/t-0", config=config)
    assert log.log_end_offset == 3
    append(log, b"y")
    log.close(clean=True)
    assert disk.open(second).size() == log.files.active.size
    assert open_log(disk, path=f"{tmp_path}/t-0", config=config, clean=True, recovery_point=4).log_end_offset == 4


def test_a_segment_that_ended_is_due_to_be_flushed() -> None:
    """Kafka's flush-log: after a crash no more than the active segment should need a scan."""
    log = open_log()
    append(log, b"a", b"b", b"c")
    log.roll(NOW)
    append(log, b"d")
    assert log.recovery_point == 0
    assert log.flush_due(NOW)
    log.flush()
    assert log.recovery_point == 4
    assert not log.flush_due(NOW)
