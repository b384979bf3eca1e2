"""Rows from logs that pykbroker_log wrote: every record once, whatever the segments look like."""

from __future__ import annotations

import datetime
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykbroker_log import names
from pykbroker_log.log_config import LogConfig
from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records.batch import build_batch
from pyspark_pykbroker.faults import DamagedSegment, RecordsLost, WrongOption
from pyspark_pykbroker.piece_reader import read_piece
from pyspark_pykbroker.row_schema import all_columns, columns_of
from testkit.logs.data_directory import SMALL, DataDirectory, read
from testkit.logs.helpers import NOW, append
from testkit.logs.transactions import History
from tests.log.compacting import compact, put
from tests.log.test_transactions import end, send

pytestmark = pytest.mark.usefixtures("twin")


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    return DataDirectory(tmp_path / "data")


def filled(directory: DataDirectory, count: int = 40, topic: str = "t", partition: int = 0) -> PartitionLog:
    """Record n is of NOW + 1000 n."""
    log = directory.log(topic, partition)
    for number in range(count):
        append(log, b"%d" % number, timestamp=NOW + 1000 * number)
    directory.checkpoint()
    return log


def when(timestamp_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)


@pytest.mark.parametrize("codec", range(5))
def test_every_column(directory: DataDirectory, codec: int) -> None:
    log = directory.log()
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]] = [
        (b"k", b"v", [("a", b"1"), ("a", None)], NOW),
        (None, b"", [], NOW + 1),
        (b"", None, [("ü", b"")], NOW - 1),
    ]
    log.append_as_leader(bytearray(build_batch(records, codec=codec)), leader_epoch=0, now_ms=NOW)
    late = build_batch([(b"k", b"v", (), 5)], codec=codec, log_append_time_ms=NOW + 7)
    log.append_as_follower(bytearray(late[:7] + b"\3" + late[8:]), now_ms=NOW)
    log.set_high_watermark(4)
    directory.checkpoint()
    rows = directory.rows()
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert [row["key"] for row in rows] == [b"k", None, b"", b"k"]
    assert [row["value"] for row in rows] == [b"v", b"", None, b"v"]
    assert [row["timestamp"] for row in rows] == [when(NOW), when(NOW + 1), when(NOW - 1), when(NOW + 7)]
    assert [row["timestampType"] for row in rows] == [0, 0, 0, 1]
    assert {(row["topic"], row["partition"]) for row in rows} == {("t", 0)}
    pairs = [None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]] for row in rows]
    assert pairs == [[("a", b"1"), ("a", None)], None, [("ü", b"")], None]


def test_nothing_above_the_high_watermark_is_read(directory: DataDirectory) -> None:
    log = filled(directory, 10)
    log.append_as_leader(bytearray(build_batch([(None, b"later", (), NOW)])), leader_epoch=0, now_ms=NOW)
    directory.checkpoint()
    assert directory.offsets() == list(range(10))


def test_between_offsets_and_between_times(directory: DataDirectory) -> None:
    filled(directory)
    assert directory.offsets(startingOffsets='{"t": {"0": 7}}', endingOffsets='{"t": {"0": 23}}') == list(range(7, 23))
    assert directory.offsets(startingTimestamp=NOW + 12_500) == list(range(13, 40))
    assert directory.offsets(startingTimestamp=NOW + 13_000, endingTimestamp=NOW + 30_000) == list(range(13, 30))
    assert directory.offsets(endingOffsetsByTimestamp=f'{{"t": {{"0": {NOW + 5_000}}}}}') == list(range(5))
    assert directory.offsets(endingTimestamp=NOW + 10**6) == list(range(40))
    late = {"startingTimestamp": NOW + 10**6}
    with pytest.raises(WrongOption, match="no record with a timestamp"):
        directory.offsets(**late)
    assert directory.offsets(startingOffsetsByTimestampStrategy="latest", **late) == []


def test_every_time_is_found_where_the_log_finds_it(directory: DataDirectory) -> None:
    log = directory.log()
    choice = random.Random(5)
    for _ in range(60):
        append(log, *[b"x"] * choice.randrange(1, 4), timestamp=NOW + choice.randrange(100))
    directory.checkpoint()
    for timestamp in range(NOW, NOW + 100):
        found = log.offset_for_timestamp(timestamp)
        mine = directory.offsets(startingTimestamp=timestamp, startingOffsetsByTimestampStrategy="latest")
        assert mine == (list(range(found[0], 60 * 4))[: len(mine)] if found else [])


def test_offsets_that_the_log_does_not_have(directory: DataDirectory) -> None:
    log = filled(directory)
    log.delete_records_before(15)
    log.retire(NOW)
    directory.checkpoint()
    assert directory.offsets() == list(range(15, 40))
    for asked in ({"startingOffsets": '{"t": {"0": 3}}'}, {"endingOffsets": '{"t": {"0": 50}}'}):
        with pytest.raises(RecordsLost, match="failOnDataLoss"):
            directory.offsets(**asked)
        assert directory.offsets(failOnDataLoss="false", **asked) == list(range(15, 40))


@pytest.mark.parametrize("most", [1, 2, 5, 13, 40])
def test_pieces_neither_lose_nor_repeat(directory: DataDirectory, most: int) -> None:
    filled(directory, 57)
    filled(directory, 31, partition=1)
    pieces = directory.pieces(minPartitions=most)
    assert most <= len(pieces) <= 2 * most + 2
    found = sorted((row["partition"], row["offset"]) for row in directory.rows(minPartitions=most))
    assert found == [(0, n) for n in range(57)] + [(1, n) for n in range(31)]
    assert all(piece.end - piece.start <= 4 for piece in directory.pieces(maxRecordsPerPartition=4))
    assert len(directory.offsets(maxRecordsPerPartition=4)) == 88


def test_topics_by_list_pattern_and_assignment(directory: DataDirectory) -> None:
    for topic, partition in (("t", 0), ("t", 1), ("t-2", 0), ("other", 0)):
        filled(directory, 1, topic, partition)
    (directory.path / ("gone-0." + "0" * 32 + "-delete")).mkdir()
    (directory.path / ("gone-0." + "0" * 32 + "-future")).mkdir()

    def topics(**given: str) -> set[tuple[str, int]]:
        return {(row["topic"], row["partition"]) for row in directory.rows(["topic", "partition"], **given)}

    assert topics(subscribe="t,other") == {("t", 0), ("t", 1), ("other", 0)}
    assert topics(subscribePattern="t.*") == {("t", 0), ("t", 1), ("t-2", 0)}
    assert topics(assign='{"t": [1]}') == {("t", 1)}
    with pytest.raises(WrongOption, match="gone"):
        topics(subscribe="gone")
    with pytest.raises(WrongOption, match="t-7"):
        topics(assign='{"t": [7]}')
    with pytest.raises(WrongOption, match="differ in t-1"):
        topics(startingOffsets='{"t": {"0": 0}}')


def test_partitions_in_several_directories_of_one_broker(tmp_path: Path) -> None:
    directories = [DataDirectory(tmp_path / f"disk-{number}") for number in range(3)]
    for number in range(6):
        filled(directories[number % 3], 10 + number, partition=number)
    rows = directories[0].rows(["partition", "offset"], path=",".join(str(each.path) for each in directories))
    assert sorted(tuple(row.values()) for row in rows) == [(p, n) for p in range(6) for n in range(10 + p)]
    with pytest.raises(RecordsLost, match="no directory has t-"):
        directories[0].rows(path=f"{directories[0].path},{directories[1].path}")


def test_rows_while_a_broker_writes(directory: DataDirectory) -> None:
    """The log grows and rolls between any two batches of a reader."""
    log = filled(directory, 20)
    options = directory.options(rowsPerBatch=3)
    pieces = directory.pieces(minPartitions=3)
    found: list[int] = []
    for piece in pieces:
        for batch in read_piece(piece, ["offset"], options):
            found += batch["offset"].to_pylist()
            append(log, b"later", timestamp=NOW)
    assert found == list(range(20))
    directory.checkpoint()
    assert len(directory.offsets()) == log.log_end_offset > 20


def test_a_schema_is_a_subset_of_the_columns() -> None:
    everything = all_columns(True)
    assert columns_of(everything, True) == everything.names
    subset = type(everything)([everything["value"], everything["key"]])
    assert columns_of(subset, False) == ["value", "key"]
    with pytest.raises(WrongOption, match="includeHeaders"):
        columns_of(everything, False)
    with pytest.raises(WrongOption, match="cast"):
        columns_of(type(everything)().add("value", "string"), False)
    with pytest.raises(WrongOption, match="'price'"):
        columns_of(type(everything)().add("price", "integer"), False)


def test_holes_of_compaction_are_no_errors_and_a_compaction_on_its_way_changes_nothing_twice(
    directory: DataDirectory,
) -> None:
    config = LogConfig(segment_bytes=300, index_interval_bytes=50, cleanup_policy=frozenset(("compact",)))
    log = directory.log(config=config)
    for number in range(60):
        put(log, (b"%d" % (number % 7), b"%d" % number))
    directory.checkpoint()
    before = directory.pieces(minPartitions=4)
    seen = []

    def look() -> None:
        rows = directory.rows(["key", "value"])
        seen.append(len(rows))
        last = {row["key"]: row["value"] for row in rows}
        assert last == {b"%d" % (number % 7): b"%d" % number for number in range(53, 60)}

    compact(log, between=look)
    look()
    assert max(seen) == 60
    assert min(seen) < 30
    # Pieces name offsets, so those of a plan before the compaction are still read.
    after = [row["offset"] for row in directory.rows(["offset"])]
    assert [row["offset"] for row in read(before, directory.options(), ["offset"])] == after


def test_a_range_that_ends_before_it_begins_is_refused_as_the_kafka_source_does(directory: DataDirectory) -> None:
    filled(directory)
    filled(directory, partition=1)
    before = {"startingOffsets": '{"t": {"0": 20, "1": -2}}', "endingOffsets": '{"t": {"0": 10, "1": -1}}'}
    for given_ in (before, {**before, "failOnDataLoss": "false"}):
        with pytest.raises(WrongOption, match="t-0: the beginning offset 20 is after the ending offset 10"):
            directory.pieces(**given_)
    beyond = {"startingOffsets": '{"t": {"0": 1000, "1": -2}}'}
    with pytest.raises(RecordsLost, match=r"t-0 .* 999 was asked for"):
        directory.pieces(**beyond)
    with pytest.raises(WrongOption, match="t-0: the beginning offset 1000 is after the ending offset 40"):
        directory.pieces(**beyond, failOnDataLoss="false")


def test_an_abort_without_its_index_is_found_by_the_piece_that_has_the_records(directory: DataDirectory) -> None:
    """The marker is in another piece, and after the requested records."""
    log = directory.log(config=LogConfig(index_interval_bytes=50))
    send(log, 1, b"0", b"1", b"2")
    for number in range(3, 30):
        append(log, b"%d" % number)
    end(log, 1, commit=False)
    append(log, b"31")
    directory.checkpoint()
    asked = {"isolation": "read_committed", "endingOffsets": '{"t": {"0": 10}}'}
    assert directory.offsets(**asked) == list(range(3, 10))
    [index] = (directory.path / "t-0").glob(f"*{names.TXN_INDEX}")
    index.unlink()
    assert directory.offsets(endingOffsets='{"t": {"0": 10}}') == list(range(10)), "uncommitted reads need no index"
    with pytest.raises(DamagedSegment, match=r"offset 30: it aborts .* from offset 0 on, .*\.txnindex"):
        directory.offsets(**asked)
    with pytest.raises(DamagedSegment, match=r"\.txnindex"):
        directory.offsets(isolation="read_committed", minPartitions=6)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    one = st.tuples(st.sampled_from(["plain", "send", "commit", "abort"]), st.integers(1, 3), st.integers(1, 4))
    return draw(st.lists(one, max_size=40))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(story=stories(), replicated=st.floats(0, 1), pieces=st.integers(1, 6), codec=st.sampled_from([0, 3]))
def test_committed_rows_are_those_of_the_log(
    story: list[tuple[str, int, int]], replicated: float, pieces: int, codec: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = DataDirectory(Path(folder))
        log = directory.log(config=SMALL)
        ends = [0]
        for kind, pid, count in story:
            is_open = pid in log.producers.entries and log.producers.entries[pid].txn_first_offset >= 0
            if kind == "plain":
                records = [(b"k", b"%d" % number, (), NOW) for number in range(count)]
                log.append_as_leader(bytearray(build_batch(records, codec=codec)), leader_epoch=0, now_ms=NOW)
            elif kind == "send":
                send(log, pid, *[b"%d" % number for number in range(count)])
            elif is_open:
                end(log, pid, commit=kind == "commit")
            ends.append(log.log_end_offset)
        directory.checkpoint()
        history = History.of(log)
        mark = ends[int(replicated * (len(ends) - 1))]
        # As of a moment at which less was replicated.
        (directory.path / names.HIGH_WATERMARKS).write_text(f"0\n1\nt 0 {mark}\n")
        wanted = {offset: value for offset, value, _ in history.values if offset < mark}
        stable = min(
            [
                mark,
                *(t.first_offset for t in history.txns if t.first_offset < mark and not 0 <= t.marker < mark),
            ]
        )
        asked = {"minPartitions": pieces, "rowsPerBatch": 3}
        assert {row["offset"]: row["value"] for row in directory.rows(["offset", "value"], **asked)} == wanted
        rows = directory.rows(["offset", "value"], isolation="read_committed", **asked)
        assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
        committed = history.committed(0, stable)
        assert {row["offset"]: row["value"] for row in rows} == committed
        # A copy without the indexes of aborted transactions.
        for index in Path(folder).glob(f"*/*{names.TXN_INDEX}"):
            index.unlink()
        before = {offset: value for offset, value in wanted.items() if offset < stable}
        assert committed.items() <= before.items()
        try:
            rows = directory.rows(["offset", "value"], isolation="read_committed", **asked)
        except DamagedSegment:
            assert before != committed
        else:
            assert {row["offset"]: row["value"] for row in rows} == committed
        for log in directory.logs.values():
            log.close(clean=False)
