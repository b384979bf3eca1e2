"""The offsets of a stream: they go on where they ended, and never back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_pykbroker.faults import RecordsLost, WrongOption
from pyspark_pykbroker.history import Boundary
from pyspark_pykbroker.segment_stream import SegmentStreamReader, offsets_of, share, stored
from pyspark_pykbroker.source_options import SourceOptions
from tests.log.helpers import append
from tests.spark_segments.data_directory import DataDirectory, read

KEYS = st.tuples(st.sampled_from("ab"), st.integers(0, 3))


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    made = DataDirectory(tmp_path / "data")
    more(made, 20)
    return made


def more(directory: DataDirectory, count: int, partition: int = 0) -> None:
    log = directory.logs.get(("t", partition)) or directory.log(partition=partition)
    for _ in range(count):
        append(log, b"x")
    directory.checkpoint()


def reader(directory: DataDirectory, **given: str) -> SegmentStreamReader:
    return SegmentStreamReader(stream_options(directory, **given), ["offset"])


def stream_options(directory: DataDirectory, **given: str) -> SourceOptions:
    texts = {"path": str(directory.path), "subscribe": "t", "startingOffsets": "earliest"}
    return SourceOptions.parse(texts | given, streaming=True)


def test_each_batch_goes_on_where_the_last_one_ended(directory: DataDirectory) -> None:
    stream = reader(directory)
    start, end = stream.initialOffset(), stream.latestOffset()
    assert (start, end) == ({"t": {"0": 0}}, {"t": {"0": 20}})
    assert len(read(stream.partitions(start, end), directory.options())) == 20
    more(directory, 5)
    more(directory, 3, partition=1)
    later = stream.latestOffset()
    assert later == {"t": {"0": 25, "1": 3}}
    rows = read(stream.partitions(end, later), directory.options(), ["partition", "offset"])
    assert [tuple(row.values()) for row in rows] == [*((0, n) for n in range(20, 25)), *((1, n) for n in range(3))]
    assert stream.partitions(later, later) == []


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(directory: DataDirectory) -> None:
    assert reader(directory, startingOffsets="latest").initialOffset() == {"t": {"0": 20}}


def test_batches_are_bounded(directory: DataDirectory) -> None:
    more(directory, 60, partition=1)
    stream = reader(directory, maxOffsetsPerTrigger="8")
    at = stream.initialOffset()
    seen = 0
    while (end := stream.latestOffset()) != at:
        rows = read(stream.partitions(at, end), directory.options())
        assert 0 < len(rows) <= 9
        seen, at = seen + len(rows), end
    assert seen == 80


def test_a_stream_that_is_run_again_takes_its_place_from_the_checkpoint(directory: DataDirectory) -> None:
    stream = reader(directory, maxOffsetsPerTrigger="4")
    place = {"t": {"0": 12}}
    assert stream.partitions(place, place) == []
    assert stream.latestOffset() == {"t": {"0": 16}}


def test_offsets_do_not_go_back_with_the_checkpoint_of_a_broker(directory: DataDirectory) -> None:
    stream = reader(directory)
    start, end = stream.initialOffset(), stream.latestOffset()
    (directory.path / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    assert len(read(stream.partitions(start, end), directory.options())) == 20
    assert stream.latestOffset() == end


def test_what_was_deleted_before_it_was_read_is_an_error(directory: DataDirectory) -> None:
    log = directory.logs["t", 0]
    log.delete_records_before(15)
    directory.checkpoint()
    place, end = {"t": {"0": 10}}, {"t": {"0": 20}}
    with pytest.raises(RecordsLost, match="offsets 10 to 14 are gone"):
        reader(directory).partitions(place, end)
    kept = reader(directory, failOnDataLoss="false").partitions(place, end)
    assert [row["offset"] for row in read(kept, directory.options(), ["offset"])] == list(range(15, 20))
    with pytest.raises(RecordsLost, match="t-1 is gone"):
        reader(directory).partitions({"t": {"0": 20, "1": 2}}, {"t": {"0": 20, "1": 5}})


def test_a_stream_may_have_an_end(directory: DataDirectory) -> None:
    stream = reader(directory, endingOffsets='{"t": {"0": 11}}')
    assert stream.initialOffset() == {"t": {"0": 0}}
    assert stream.latestOffset() == {"t": {"0": 11}}
    more(directory, 5)
    assert stream.latestOffset() == {"t": {"0": 11}}


@given(st.dictionaries(KEYS, st.integers(0, 1 << 40)))
def test_offsets_as_spark_stores_them(offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(stored(offsets)) == offsets


@given(st.dictionaries(KEYS, st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1), st.integers(1, 150))
def test_a_share_is_bounded_and_moves_every_partition(
    ranges: dict[tuple[str, int], tuple[int, int]], most: int
) -> None:
    starts = {key: start for key, (start, _) in ranges.items()}
    ends = {key: start + size for key, (start, size) in ranges.items()}
    found = share(starts, ends, most)
    assert all(starts[key] <= found[key] <= ends[key] for key in ranges)
    assert all(found[key] > starts[key] for key, (_, size) in ranges.items() if size)
    assert sum(found[key] - starts[key] for key in ranges) <= most + len(ranges)


# -- the boundary between segments and broker


def test_a_boundary_is_where_the_segments_end_and_comes_back_from_its_file(directory: DataDirectory) -> None:
    more(directory, 3, partition=1)
    boundary = Boundary.of(directory.options(isolation="read_committed"))
    assert boundary.offsets == {0: 20, 1: 3}
    assert boundary.json_of_offsets() == '{"t": {"0": 20, "1": 3}}'
    assert boundary.assigned() == '{"t": [0, 1]}'
    assert Boundary.decode(boundary.encode(), "f") == boundary


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "topic": "t"}', '{"version": 1, "boundary": 3}']
)
def test_a_file_that_is_no_boundary_is_refused(text: str) -> None:
    with pytest.raises(WrongOption, match="f "):
        Boundary.decode(text, "f")
