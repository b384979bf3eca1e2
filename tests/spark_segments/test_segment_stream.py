"""The offsets of a stream: they go on where they ended, and never back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_log import names
from pykbroker_log.checkpoints import encode_offsets
from pykbroker_wire.primitives import uuid_to_str
from pyspark_pykbroker.faults import RecordsLost, WrongOption
from pyspark_pykbroker.history import Boundary
from pyspark_pykbroker.places import Place, Stored
from pyspark_pykbroker.segment_stream import SegmentStreamReader, share
from pyspark_pykbroker.source_options import SourceOptions
from testkit.logs.data_directory import DataDirectory, read
from testkit.logs.helpers import TOPIC_ID, append

OTHER_TOPIC = bytes(range(16, 32))
ID, OTHER_ID = uuid_to_str(TOPIC_ID), uuid_to_str(OTHER_TOPIC)
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


def at(topic_id: str = ID, **offsets: int) -> Stored:
    """The place `_0=20` of the topic t."""
    return {"t": {**({"id": topic_id} if topic_id else {}), **{name[1:]: offset for name, offset in offsets.items()}}}


def delete(directory: DataDirectory) -> None:
    """As a broker does: the next checkpoint does not know the topic."""
    for (topic, partition), log in directory.logs.items():
        log.close(clean=True)
        (directory.path / f"{topic}-{partition}").rename(directory.path / f"{topic}-{partition}.{'0' * 32}-delete")
    directory.logs.clear()
    directory.checkpoint()


def make_again(directory: DataDirectory, count: int) -> None:
    delete(directory)
    directory.log(topic_id=OTHER_TOPIC)
    more(directory, count)


def stream_options(directory: DataDirectory, **given: str) -> SourceOptions:
    texts = {"path": str(directory.path), "subscribe": "t", "startingOffsets": "earliest"}
    return SourceOptions.parse(texts | given, streaming=True)


def test_each_batch_goes_on_where_the_last_one_ended(directory: DataDirectory) -> None:
    stream = reader(directory)
    start, end = stream.initialOffset(), stream.latestOffset()
    assert (start, end) == (at(_0=0), at(_0=20))
    assert len(read(stream.partitions(start, end), directory.options())) == 20
    more(directory, 5)
    more(directory, 3, partition=1)
    later = stream.latestOffset()
    assert later == at(_0=25, _1=3)
    rows = read(stream.partitions(end, later), directory.options(), ["partition", "offset"])
    assert [tuple(row.values()) for row in rows] == [*((0, n) for n in range(20, 25)), *((1, n) for n in range(3))]
    assert stream.partitions(later, later) == []


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(directory: DataDirectory) -> None:
    assert reader(directory, startingOffsets="latest").initialOffset() == at(_0=20)


def test_batches_are_bounded(directory: DataDirectory) -> None:
    more(directory, 60, partition=1)
    stream = reader(directory, maxOffsetsPerTrigger="8")
    # Spark asks a new stream in this order.
    end = stream.latestOffset()
    place = stream.initialOffset()
    seen = 0
    while end != place:
        rows = read(stream.partitions(place, end), directory.options())
        assert 0 < len(rows) <= 9
        seen, place = seen + len(rows), end
        end = stream.latestOffset()
    assert seen == 80


def test_what_comes_before_spark_asks_where_a_new_stream_begins_is_read(directory: DataDirectory) -> None:
    stream = reader(directory, startingOffsets="latest")
    end = stream.latestOffset()
    more(directory, 5)
    start = stream.initialOffset()
    assert (start, end) == (at(_0=20), at(_0=20))
    assert stream.partitions(start, end) == []
    assert stream.latestOffset() == at(_0=25)


def test_a_stream_that_is_run_again_takes_its_place_from_the_checkpoint(directory: DataDirectory) -> None:
    stream = reader(directory, maxOffsetsPerTrigger="4")
    place = at(_0=12)
    assert stream.partitions(place, place) == []
    assert stream.latestOffset() == at(_0=16)


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
    place, end = at(_0=10), at(_0=20)
    with pytest.raises(RecordsLost, match="offsets 10 to 14 are gone"):
        reader(directory).partitions(place, end)
    kept = reader(directory, failOnDataLoss="false").partitions(place, end)
    assert [row["offset"] for row in read(kept, directory.options(), ["offset"])] == list(range(15, 20))
    with pytest.raises(RecordsLost, match="t-1 is gone"):
        reader(directory).partitions(at(_0=20, _1=2), at(_0=20, _1=5))


def test_a_stream_may_have_an_end(directory: DataDirectory) -> None:
    stream = reader(directory, endingOffsets='{"t": {"0": 11}}')
    assert stream.initialOffset() == at(_0=0)
    assert stream.latestOffset() == at(_0=11)
    more(directory, 5)
    assert stream.latestOffset() == at(_0=11)


# -- a topic that is deleted, and perhaps made again


def test_a_topic_that_was_made_again_between_two_runs_is_lost_records(directory: DataDirectory) -> None:
    place = at(_0=20)
    make_again(directory, 50)
    stream = reader(directory)
    assert stream.partitions(place, place) == []
    with pytest.raises(RecordsLost, match=f"t was deleted and made again .*{ID}.*{OTHER_ID}"):
        stream.latestOffset()
    with pytest.raises(RecordsLost, match="made again"):
        reader(directory).partitions(place, at(OTHER_ID, _0=50))
    with pytest.raises(RecordsLost, match="made again"):
        reader(directory).partitions(place, at(_0=40))  # planned, and not read before the end of the first run


@pytest.mark.parametrize("limits", [{}, {"endingOffsets": '{"t": {"0": 30}}'}, {"maxOffsetsPerTrigger": "30"}])
def test_without_a_failure_a_topic_that_was_made_again_is_read_from_its_beginning(
    directory: DataDirectory, caplog: pytest.LogCaptureFixture, limits: dict[str, str]
) -> None:
    make_again(directory, 50)
    stream = reader(directory, failOnDataLoss="false", **limits)
    # One batch of the old topic, which had one more partition, is repeated.
    place, planned = at(_0=20, _1=7), at(_0=40, _1=7)
    assert stream.partitions(place, planned) == []
    end = stream.latestOffset()
    assert end == at(OTHER_ID, _0=30 if limits else 50)
    rows = read(stream.partitions(planned, end), directory.options(), ["offset"])
    assert [row["offset"] for row in rows] == list(range(30 if limits else 50))
    assert stream.latestOffset() == at(OTHER_ID, _0=50) if "maxOffsetsPerTrigger" in limits else end
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [each.partition(" ")[0] for each in said] == ["t-1", "t"], said
    assert "made again" in said[1]


def test_a_topic_that_was_made_again_is_waited_for_until_a_checkpoint_is_its_own(directory: DataDirectory) -> None:
    stream = reader(directory, failOnDataLoss="false")
    start, end = stream.initialOffset(), stream.latestOffset()
    stream.partitions(start, end)
    delete(directory)
    assert stream.latestOffset() == end
    old_mark = directory.path / names.HIGH_WATERMARKS
    old_mark.write_bytes(encode_offsets({("t", 0): 20}))
    for _ in range(3):
        append(directory.logs.get(("t", 0)) or directory.log(topic_id=OTHER_TOPIC), b"x")
    os.utime(old_mark, (1, 1))
    assert stream.latestOffset() == end, "20 would be beyond the end of the new log"
    directory.checkpoint()
    assert stream.latestOffset() == at(OTHER_ID, _0=3)


def test_a_topic_that_is_deleted_under_a_running_stream_is_lost_records(
    directory: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    for subscription in ({"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0]}'}):
        options = {"path": str(directory.path), "startingOffsets": "earliest", **subscription}
        streams = [
            SegmentStreamReader(SourceOptions.parse({**options, "failOnDataLoss": fail}, streaming=True), ["offset"])
            for fail in ("true", "false")
        ]
        for stream in streams:
            stream.partitions(stream.initialOffset(), at(_0=20))
        folder = directory.path / "t-0"
        folder.rename(directory.path / "elsewhere")
        with pytest.raises(RecordsLost, match=r"t-0 is gone: the topic was deleted.* offset 20"):
            streams[0].latestOffset()
        caplog.clear()
        assert [streams[1].latestOffset() for _ in range(3)] == [at(_0=20)] * 3
        assert len(caplog.records) == 1
        (directory.path / "elsewhere").rename(folder)
        assert streams[1].latestOffset() == at(_0=20)


@pytest.mark.parametrize(
    "given_options",
    [
        {"subscribe": "t"},
        {"subscribePattern": "t"},
        {"assign": '{"t": [0, 1]}'},
        {"subscribe": "t", "endingOffsets": '{"t": {"0": -1, "1": -1}}'},
    ],
    ids=["subscribe", "pattern", "assign", "an end"],
)
def test_a_topic_whose_folders_go_one_by_one_keeps_its_place_without_a_failure(
    directory: DataDirectory, given_options: dict[str, str]
) -> None:
    more(directory, 3, partition=1)
    options = {"path": str(directory.path), "failOnDataLoss": "false", "startingOffsets": "earliest", **given_options}
    stream = SegmentStreamReader(SourceOptions.parse(options, streaming=True), ["offset"])
    end = stream.latestOffset()
    stream.partitions(stream.initialOffset(), end)
    for partition in (0, 1):
        (directory.path / f"t-{partition}").rename(directory.path / f"elsewhere{partition}")
        assert stream.latestOffset() == end == at(_0=20, _1=3)


def test_a_checkpoint_of_before_topic_ids_is_read_and_gets_them(directory: DataDirectory) -> None:
    stream = reader(directory)
    place: Stored = {"t": {"0": 12}}
    assert stream.partitions(place, place) == []
    end = stream.latestOffset()
    assert end == at(_0=20)
    rows = read(stream.partitions(place, end), directory.options(), ["offset"])
    assert [row["offset"] for row in rows] == list(range(12, 20))


def test_directories_without_topic_ids_are_read_on(directory: DataDirectory) -> None:
    (directory.path / "t-0" / names.PARTITION_METADATA).unlink()
    stream = reader(directory)
    assert stream.partitions(at("", _0=12), at("", _0=12)) == []
    assert stream.latestOffset() == at("", _0=20)


@given(st.dictionaries(KEYS, st.integers(0, 1 << 40)), st.sets(st.sampled_from("ab")))
def test_a_place_as_spark_stores_it(offsets: dict[tuple[str, int], int], known: set[str]) -> None:
    place = Place(offsets, dict.fromkeys(known & {topic for topic, _ in offsets}, ID))
    assert Place.decode(place.encode()) == Place.decode(json.dumps(place.encode())) == place
    turned = Place(dict(reversed([*offsets.items()])), dict(reversed([*place.topic_ids.items()])))
    assert json.dumps(turned.encode()) == json.dumps(place.encode())


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
