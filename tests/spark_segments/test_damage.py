"""Damage of a directory leads to a message with the cause and the remedy, never to a gap."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pykbroker_log import names
from pykbroker_log.log_config import LogConfig
from pyspark_pykbroker.faults import (
    DamagedSegment,
    NotADataDirectory,
    NotYet,
    RecordsLost,
    SegmentsError,
    UnknownFormat,
    message_first,
)
from pyspark_pykbroker.segment_file import SegmentFile
from testkit.logs.data_directory import DataDirectory, read
from testkit.logs.helpers import NOW, append

pytestmark = pytest.mark.usefixtures("twin")
ONE_SEGMENT = LogConfig(index_interval_bytes=100)


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    made = DataDirectory(tmp_path / "data")
    log = made.log(config=ONE_SEGMENT)
    for number in range(30):
        append(log, b"%d" % number, timestamp=NOW + number)
    made.checkpoint()
    return made


def file_of(directory: DataDirectory, kind: str = names.LOG) -> Path:
    return directory.path / "t-0" / names.segment_file(0, kind)


def change(path: Path, position: int, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] = byte
    path.write_bytes(data)


def batch_at(directory: DataDirectory, offset: int) -> int:
    segment = SegmentFile(str(directory.path / "t-0"), 0)
    return next(position for position, header in segment.batches(0) if header.base_offset == offset)


def test_a_flipped_bit(directory: DataDirectory) -> None:
    change(file_of(directory), batch_at(directory, 16) - 2, 0xAA)
    with pytest.raises(DamagedSegment, match=r"log, position \d+.*[Rr]ead another replica"):
        directory.rows()
    assert directory.offsets(endingOffsets='{"t": {"0": 5}}') == list(range(5)), "what is before it can be read"


def test_a_torn_tail_above_the_high_watermark_is_none_of_ours(directory: DataDirectory) -> None:
    with file_of(directory).open("ab") as log:
        log.write(file_of(directory).read_bytes()[:40])
    assert directory.offsets() == list(range(30))


@pytest.mark.parametrize("cut", [1, 40, 71, 300])
def test_a_log_that_ends_before_the_high_watermark(directory: DataDirectory, cut: int) -> None:
    path = file_of(directory)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(DamagedSegment, match=r"high watermark.*start its broker"):
        directory.rows()


def test_zeros_at_the_end(directory: DataDirectory) -> None:
    path = file_of(directory)
    size = path.stat().st_size
    os.truncate(path, size - 100)
    os.truncate(path, size + 4096)
    with pytest.raises(DamagedSegment):
        directory.rows()


@pytest.mark.parametrize(("magic", "said"), [(3, "newer pyspark-pykbroker"), (1, "before 0.11")])
def test_another_record_format(directory: DataDirectory, magic: int, said: str) -> None:
    change(file_of(directory), 16, magic)
    with pytest.raises(UnknownFormat, match=said):
        directory.rows()


def test_another_version_of_the_directory(tmp_path: Path, directory: DataDirectory) -> None:
    DataDirectory(tmp_path / "data", version=2)
    with pytest.raises(UnknownFormat, match="version '2'"):
        directory.rows()


@pytest.mark.parametrize("index", [names.OFFSET_INDEX, names.TIME_INDEX])
@pytest.mark.parametrize(
    "damage",
    [lambda path: path.unlink(), lambda path: path.write_bytes(b"\x07" * 120), lambda path: os.truncate(path, 13)],
)
def test_a_damaged_index_only_makes_the_search_longer(
    directory: DataDirectory, index: str, damage: Callable[[Path], None]
) -> None:
    directory.logs["t", 0].roll(NOW)
    directory.checkpoint()
    damage(file_of(directory, index))
    assert directory.offsets(startingOffsets='{"t": {"0": 21}}', minPartitions=3) == list(range(21, 30))
    assert directory.offsets(startingTimestamp=NOW + 17) == list(range(17, 30))


def test_a_damaged_index_of_aborted_transactions_stops_committed_reads(directory: DataDirectory) -> None:
    file_of(directory, names.TXN_INDEX).write_bytes(b"\x07" * 35)
    assert len(directory.rows()) == 30
    with pytest.raises(DamagedSegment, match="aborted transactions"):
        directory.rows(isolation="read_committed")


def test_a_partition_without_its_log_is_named(directory: DataDirectory) -> None:
    file_of(directory).unlink()
    with pytest.raises(DamagedSegment, match=r"t-0 has no \.log file, but offsets up to 30 were safe"):
        directory.rows()


def test_a_message_comes_before_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    with pytest.raises(DamagedSegment) as raised, message_first():
        raise DamagedSegment("t-0 is torn")
    text = "".join(traceback.format_exception(raised.value))
    assert text.splitlines()[0] == "pyspark_pykbroker.faults.DamagedSegment: t-0 is torn"


def test_a_damaged_producer_snapshot_is_passed_over(directory: DataDirectory) -> None:
    (directory.path / "t-0" / names.segment_file(30, names.SNAPSHOT)).write_bytes(b"\x07" * 56)
    assert len(directory.rows(isolation="read_committed")) == 30


def test_a_folder_that_is_no_data_directory(tmp_path: Path, directory: DataDirectory) -> None:
    with pytest.raises(NotADataDirectory, match=r"log\.dirs"):
        directory.rows(path=tmp_path)
    with pytest.raises(NotADataDirectory, match="every executor"):
        directory.rows(path=tmp_path / "nowhere")


def test_directories_of_two_clusters(tmp_path: Path, directory: DataDirectory) -> None:
    DataDirectory(tmp_path / "other", cluster_id="another")
    with pytest.raises(NotADataDirectory, match="one cluster at a time"):
        directory.rows(path=f"{tmp_path / 'data'},{tmp_path / 'other'}")


def test_of_two_replicas_the_one_that_is_safe_furthest_is_read(tmp_path: Path, directory: DataDirectory) -> None:
    other = DataDirectory(tmp_path / "other")
    log = other.log(config=ONE_SEGMENT)
    append(log, b"behind")
    other.checkpoint()
    assert len(directory.rows(path=f"{tmp_path / 'other'},{tmp_path / 'data'}")) == 30


def test_a_partition_that_no_directory_has(directory: DataDirectory) -> None:
    append(directory.log(partition=2), b"x")
    directory.checkpoint()
    with pytest.raises(RecordsLost, match="no directory has t-1"):
        directory.rows()
    assert len(directory.rows(assign='{"t": [0, 2]}')) == 31


def test_directories_of_a_topic_that_was_made_again(tmp_path: Path, directory: DataDirectory) -> None:
    other = DataDirectory(tmp_path / "other")
    append(other.log(partition=1, topic_id=bytes(range(1, 17))), b"x")
    other.checkpoint()
    with pytest.raises(RecordsLost, match="two topics of the name t"):
        directory.rows(path=f"{tmp_path / 'data'},{tmp_path / 'other'}")


def test_a_partition_that_has_no_checkpoint_yet(directory: DataDirectory) -> None:
    (directory.path / names.HIGH_WATERMARKS).write_text("0\n0\n")
    with pytest.raises(NotYet, match="every 5 s"):
        directory.rows()
    (directory.path / names.HIGH_WATERMARKS).write_text("garbage")
    with pytest.raises(UnknownFormat, match=names.HIGH_WATERMARKS):
        directory.rows()


def test_an_empty_partition_needs_no_checkpoint(directory: DataDirectory) -> None:
    directory.log("empty")
    assert directory.rows(subscribe="empty") == []


# -- between the plan and the read


def test_segments_that_retention_deletes_meanwhile(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    log = directory.log()
    for number in range(60):
        append(log, b"%d" % number)
    directory.checkpoint()
    pieces = directory.pieces(minPartitions=3)
    log.delete_records_before(25)
    log.retire(NOW)
    log.purge(NOW)
    with pytest.raises(RecordsLost, match=r"offsets \d+ to \d+ were deleted while the job ran"):
        read(pieces, directory.options())
    left = read(pieces, directory.options(failOnDataLoss="false"), ["offset"])
    assert [row["offset"] for row in left][-35:] == list(range(25, 60))


def test_a_topic_that_is_deleted_meanwhile(directory: DataDirectory) -> None:
    pieces = directory.pieces()
    moved = directory.path / ("t-0." + "0" * 32 + "-delete")
    os.rename(directory.path / "t-0", moved)
    with pytest.raises(RecordsLost, match="the topic was deleted"):
        read(pieces, directory.options())


def test_a_topic_that_is_made_again_meanwhile(directory: DataDirectory) -> None:
    pieces = directory.pieces()
    shutil.rmtree(directory.path / "t-0")
    append(directory.log(topic_id=bytes(range(1, 17))), b"new")
    with pytest.raises(RecordsLost, match="deleted and made again"):
        read(pieces, directory.options())


def test_a_reader_keeps_what_it_has_opened(directory: DataDirectory) -> None:
    from pyspark_pykbroker.piece_reader import read_piece

    options = directory.options(rowsPerBatch=5)
    [piece] = directory.pieces()
    batches = read_piece(piece, ["offset"], options)
    rows = next(batches).num_rows
    shutil.rmtree(directory.path / "t-0")
    assert rows + sum(batch.num_rows for batch in batches) == 30


def test_every_fault_is_one_class() -> None:
    assert {each.__name__ for each in SegmentsError.__subclasses__()} >= {"DamagedSegment", "RecordsLost", "NotYet"}
