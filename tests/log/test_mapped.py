"""Files that are scanned through maps: the same results as without; files that are empty, grow, become shorter."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from pykbroker_log.compaction import CleanerMemory, CleaningJob, SegmentSource, clean
from pykbroker_log.log_config import LogConfig
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.mapped import MappedFile
from pykbroker_log.partition_log import PartitionLog
from pykbroker_log.segment import Segment
from pykbroker_wire.records.batch import BatchHeader
from testkit.logs.helpers import NOW, append, open_log
from tests.log.compacting import SEED, compact, contents, put

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=2000)
LOG = "00000000000000000000.log"


@pytest.fixture
def mapped() -> list[str]:
    return []


@pytest.fixture
def maps(mapped: list[str]) -> OsDisk:
    """A disk that maps files, and records which."""
    return OsDisk(on_map=mapped.append)


def filled(path: Path) -> PartitionLog:
    log = open_log(OsDisk(), path=str(path), config=CONFIG)
    for number in range(60):
        put(log, (b"%d" % (number % 7), b"%d" % number * 30))
    return log


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_file_that_is_empty_and_grows(tmp_path: Path, maps: OsDisk, mapped: list[str]) -> None:
    path = tmp_path / "file"
    path.touch()
    reader = maps.open(str(path)).reader()
    assert isinstance(reader, MappedFile)
    assert mapped == [str(path)]
    assert (bytes(reader.pread(10, 0)), reader.size()) == (b"", 0)
    path.write_bytes(b"one")
    before = reader.pread(10, 0)
    assert bytes(before) == b"one"
    with path.open("ab") as file:
        file.write(b"two")
    assert (bytes(reader.pread(10, 2)), reader.size()) == (b"etwo", 6)
    assert (bytes(reader.pread(10, 6)), bytes(reader.pread(10, 60))) == (b"", b"")
    assert bytes(before) == b"one", "a view stays readable"


def test_a_disk_of_a_broker_maps_nothing(tmp_path: Path) -> None:
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    assert file.reader() is file


def test_a_scan_through_maps_leaves_what_any_scan_leaves(tmp_path: Path, maps: OsDisk, mapped: list[str]) -> None:
    for name in ("read", "mapped"):
        filled(tmp_path / name).close(clean=False)
        with (tmp_path / name / LOG).open("ab") as file:
            file.write(b"torn")
    for name, disk in (("read", OsDisk()), ("mapped", maps)):
        log = open_log(disk, path=str(tmp_path / name), config=CONFIG)
        assert log.recovery is not None
        log.close(clean=True)
    assert files(tmp_path / "read") == files(tmp_path / "mapped")
    assert f"{tmp_path}/mapped/{LOG}" in mapped


def test_a_cleaning_through_maps_leaves_what_any_cleaning_leaves(
    tmp_path: Path, maps: OsDisk, mapped: list[str]
) -> None:
    found = []
    for name, disk in (("read", OsDisk()), ("mapped", maps)):
        filled(tmp_path / name).close(clean=True)
        log = open_log(disk, path=str(tmp_path / name), config=CONFIG, clean=True, recovery_point=60)
        log.set_high_watermark(log.log_end_offset)
        assert compact(log) is not None
        found.append(list(contents(log)))
        log.close(clean=True)
    assert found[0] == found[1]
    assert len(found[0]) < 60
    assert f"{tmp_path}/mapped/{LOG}" in mapped


def test_a_file_that_is_cut_within_a_page_is_no_log_that_ends_earlier(tmp_path: Path, maps: OsDisk) -> None:
    """Beyond the end of its file a map shows zeros up to the end of the page. A scan took them for the end of the log,
    where a read came back short."""
    log = open_log(OsDisk(), path=str(tmp_path / "t-0"))
    append(log, b"one")
    append(log, b"two")
    log.close(clean=False)
    path = tmp_path / "t-0" / LOG

    def cut(header: BatchHeader, batch: memoryview) -> str:
        os.truncate(path, header.size_in_bytes)
        return ""

    segment = Segment(maps, str(tmp_path / "t-0"), 0, index_interval_bytes=4096, now_ms=NOW)
    with pytest.raises(OSError, match="segment is shorter than it was") as raised:
        list(segment.recover(cut))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("has_maps", [True, False])
def test_a_cleaning_of_a_segment_that_is_too_short_ends(tmp_path: Path, maps: OsDisk, has_maps: bool) -> None:
    """It read the beginning of the last batch again and again, without end."""
    log = filled(tmp_path / "t-0")
    end = log.log_end_offset
    sources = tuple(SegmentSource(segment.base_offset, segment.size) for segment in log.files.segments)
    log.close(clean=True)
    os.truncate(tmp_path / "t-0" / LOG, sources[0].size - 1)
    cleaning = CleaningJob(str(tmp_path / "t-0"), sources, (), 0, end, {}, CONFIG, CleanerMemory(), SEED, NOW)
    with pytest.raises(OSError, match="segment is shorter than it was") as raised:
        list(clean(maps if has_maps else OsDisk(), cleaning))
    assert raised.value.errno == errno.EIO


def test_a_cleaning_of_a_file_that_is_cut_within_a_page_says_so(tmp_path: Path, maps: OsDisk) -> None:
    """The zeros beyond the end are no damaged batch, for which only this one log would be left out."""
    log = filled(tmp_path / "t-0")
    end = log.log_end_offset
    sources = tuple(SegmentSource(segment.base_offset, segment.size) for segment in log.files.segments)
    log.close(clean=True)
    assert sources[0].size < 4096
    # Small chunks: the first is read before the job pauses, the next after the cut.
    memory = CleanerMemory(io_buffer_bytes=100)
    job = clean(maps, CleaningJob(str(tmp_path / "t-0"), sources, (), 0, end, {}, CONFIG, memory, SEED, NOW))
    assert isinstance(next(job), int)
    os.truncate(tmp_path / "t-0" / LOG, 200)
    with pytest.raises(OSError, match="segment is shorter than it was"):
        list(job)


def test_a_cleaning_whose_last_read_met_the_zeros_of_a_page_says_so(tmp_path: Path, maps: OsDisk) -> None:
    """The one chunk was checked before the file was cut: zeros would be copied out of the map."""
    log = filled(tmp_path / "t-0")
    end = log.log_end_offset
    sources = tuple(SegmentSource(segment.base_offset, segment.size) for segment in log.files.segments)
    log.close(clean=True)
    job = clean(maps, CleaningJob(str(tmp_path / "t-0"), sources, (), 0, end, {}, CONFIG, CleanerMemory(), SEED, NOW))
    assert isinstance(next(job), int)
    os.truncate(tmp_path / "t-0" / LOG, 200)
    with pytest.raises(OSError, match="segment is shorter than it was"):
        list(job)


def test_a_file_that_cannot_be_mapped_is_read(tmp_path: Path, maps: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_map(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "no memory areas are left")

    (tmp_path / "file").write_bytes(b"0123456789")
    monkeypatch.setattr(mmap, "mmap", no_map)
    reader = maps.open(str(tmp_path / "file")).reader()
    assert bytes(reader.pread(4, 3)) == b"3456"
    assert bytes(reader.pread(4, 8)) == b"89"
    with (tmp_path / "file").open("ab") as file:
        file.write(b"more")
    assert (bytes(reader.pread(8, 8)), reader.size()) == (b"89more", 14)
