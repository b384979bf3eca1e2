"""Opening a log of many segments only lists its folder: a segment is opened at its first use."""

from __future__ import annotations

import pathlib

from pykbroker_log import names
from pykbroker_log.disk import write_new
from pykbroker_log.log_config import LogConfig
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsFile
from pykbroker_log.partition_log import PartitionLog
from testkit.logs.helpers import append, check_consistent, open_log, values

SEGMENTS = 40
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


class CountingDisk(OsDisk):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.opened.append(path.rpartition("/")[2])
        return super().open(path, create=create)


def written(path: str) -> dict[int, bytes]:
    """Write a log of many segments and close it cleanly; return its values."""
    log = open_log(OsDisk(), config=CONFIG, path=path)
    while len(log.files.segments) < SEGMENTS:
        append(log, b"%d" % log.log_end_offset * 10)
    found = values(log)
    log.close(clean=True)
    return found


def reopened(disk: OsDisk, path: str, end: int) -> PartitionLog:
    return open_log(disk, config=CONFIG, path=path, clean=True, recovery_point=end, high_watermark=end)


def segment_files(disk: CountingDisk) -> list[str]:
    return [name for name in disk.opened if names.parse_segment_file(name) and not name.endswith(names.SNAPSHOT)]


def test_sealed_segments_are_not_opened_before_they_are_used(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/t-0"
    expected = written(path)
    disk = CountingDisk()
    log = reopened(disk, path, len(expected))
    active = log.files.segments[-1].base_offset
    assert {names.parse_segment_file(name).base_offset for name in segment_files(disk)} == {active}  # type: ignore[union-attr]
    sizes = sum(size for name, size in disk.scan(path) if name.endswith(names.LOG))
    assert log.size_bytes == sizes
    disk.opened.clear()
    # A read in the middle opens only that segment.
    middle = log.files.segments[SEGMENTS // 2]
    log.read(middle.base_offset + 1, 1 << 20, log.high_watermark)
    assert set(segment_files(disk)) == {
        names.segment_file(middle.base_offset, suffix) for suffix in (names.LOG, names.OFFSET_INDEX)
    }
    assert values(log) == expected
    check_consistent(log)


def test_a_log_that_was_not_used_is_closed_without_opening_its_segments(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/t-0"
    expected = written(path)
    disk = CountingDisk()
    reopened(disk, path, len(expected)).close(clean=True)
    assert len({names.parse_segment_file(name) for name in segment_files(disk)}) < 8
    assert values(reopened(OsDisk(), path, len(expected))) == expected


def test_a_damaged_index_is_rebuilt_when_it_is_first_used(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/t-0"
    expected = written(path)
    disk = OsDisk()
    for name in disk.list(path):
        if name.endswith((names.OFFSET_INDEX, names.TIME_INDEX)):
            write_new(disk, f"{path}/{name}", b"\xff" * 24)
    log = reopened(disk, path, len(expected))
    assert values(log) == expected
    check_consistent(log)


def test_an_index_of_no_whole_number_of_entries_is_rebuilt_at_once(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/t-0"
    expected = written(path)
    disk = OsDisk()
    victim = f"{path}/{names.segment_file(0, names.TIME_INDEX)}"
    write_new(disk, victim, b"\x00" * 13)
    log = reopened(disk, path, len(expected))
    assert "1 segments from offset 0" in (log.recovery or "")
    assert values(log) == expected
    check_consistent(log)


def test_truncation_and_deletion_of_segments_that_were_never_opened(tmp_path: pathlib.Path) -> None:
    path = f"{tmp_path}/t-0"
    expected = written(path)
    log = reopened(OsDisk(), path, len(expected))
    middle = log.files.segments[SEGMENTS // 2].base_offset
    log.truncate_to(middle + 1)
    assert values(log) == {offset: value for offset, value in expected.items() if offset <= middle}
    log.set_high_watermark(log.log_end_offset)
    log.delete_records_before(middle)
    assert log.retire(0) == SEGMENTS // 2
    assert len(log.files.segments) == 1
    check_consistent(log)
