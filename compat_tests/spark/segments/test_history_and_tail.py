"""A stream over segments, and the past of a topic united with its present. Every record comes once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.spark.segments.estates import OURS, Estate, wait_for_checkpoint
from pyspark_pykbroker import history_and_tail
from pyspark_pykbroker.faults import WrongOption
from testkit.clients import NOW_MS, Record, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def send(estate: Estate, topic: str, first: int, count: int) -> None:
    records = [Record(b"k", b"%d" % number, (), NOW_MS + number, number % 2) for number in range(first, first + count)]
    ConfluentClient().produce(estate.node.bootstrap, topic, records, compression="lz4")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def written_to(estate: Estate, output: Path) -> list[int]:
    return numbers(estate.spark.read.schema("value string").json(str(output)))


@contextmanager
def producing(estate: Estate, topic: str, first: int) -> Iterator[list[int]]:
    """Run a client that continues to write; the list has its position."""
    at = [first]
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(0.05):
            send(estate, topic, at[0], 50)
            at[0] += 50

    thread = threading.Thread(target=run, name="producing client")
    thread.start()
    try:
        yield at
    finally:
        stopped.set()
        thread.join()


def into(frame: DataFrame, output: Path, checkpoint: Path) -> StreamingQuery:
    writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("json")
    return writer.option("path", str(output)).option("checkpointLocation", str(checkpoint)).start()


def run_to_the_end(query: StreamingQuery) -> None:
    """Run the query to the end; no more records are written."""
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@OURS
def test_a_stream_over_segments_goes_on_from_its_checkpoint(estate: Estate, tmp_path: Path) -> None:
    topic = estate.topics.create(partitions=2)

    def run() -> list[Any]:
        reader = estate.spark.readStream.format("pyspark_pykbroker").option("subscribe", topic)
        frame = reader.option("startingOffsets", "earliest").load(str(estate.node.data_dir))
        query = into(frame, tmp_path / "output", tmp_path / "checkpoint")
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return written_to(estate, tmp_path / "output")

    send(estate, topic, 0, 100)
    wait_for_checkpoint(estate.node, topic)
    assert run() == list(range(100))
    send(estate, topic, 100, 60)
    wait_for_checkpoint(estate.node, topic)
    assert run() == list(range(160))


@OURS
def test_a_stream_over_a_topic_that_is_deleted_and_made_again_loses_nothing_in_silence(
    estate: Estate, tmp_path: Path
) -> None:
    topic = estate.topics.create()

    @contextmanager
    def stream(**options: str) -> Iterator[StreamingQuery]:
        reader = estate.spark.readStream.format("pyspark_pykbroker").options(subscribe=topic, **options)
        query = into(reader.load(str(estate.node.data_dir)), tmp_path / "output", tmp_path / "checkpoint")
        try:
            yield query
        finally:
            query.stop()

    def sizes_of_batches(query: StreamingQuery) -> list[int]:
        query.processAllAvailable()
        return [each.numInputRows for each in query.recentProgress if each.numInputRows]

    def fill(first: int, count: int) -> None:
        records = [Record(b"k", b"%d" % number, (), NOW_MS + number, 0) for number in range(first, first + count)]
        ConfluentClient().produce(estate.node.bootstrap, topic, records)
        wait_for_checkpoint(estate.node, topic)

    fill(0, 100)
    with stream(startingOffsets="earliest", maxOffsetsPerTrigger="60") as query:
        assert sizes_of_batches(query) == [60, 40]
        estate.topics.delete(topic)
        with pytest.raises(Exception, match=r"RecordsLost: .* was deleted"):
            query.awaitTermination(60)
    wait_until(lambda: not (estate.node.data_dir / f"{topic}-0").exists(), "the topic is gone")
    estate.topics.create(name=topic)
    fill(1000, 160)
    with (
        stream() as query,
        pytest.raises(Exception, match=r"RecordsLost: .* was deleted and made again"),
    ):
        query.processAllAvailable()
    with stream(failOnDataLoss="false", maxOffsetsPerTrigger="120") as query:
        assert sizes_of_batches(query) == [120, 40]
    assert written_to(estate, tmp_path / "output") == [*range(100), *range(1000, 1160)]


def test_rows_of_a_directory_that_a_broker_writes(estate: Estate) -> None:
    """Each read sees a first part of every partition, and a later read sees more."""
    topic = estate.topics.create(partitions=2)
    send(estate, topic, 0, 100)
    wait_for_checkpoint(estate.node, topic)
    seen = 0
    with producing(estate, topic, 100) as at:
        while seen < 600:
            reader = estate.spark.read.format("pyspark_pykbroker").options(subscribe=topic, minPartitions=4)
            frame = reader.schema("partition int, offset bigint, value binary").load(str(estate.node.data_dir))
            found = sorted((row.partition, row.offset, int(row.value)) for row in frame.collect())
            of_first = sum(1 for partition, _, _ in found if not partition)
            counts = (of_first, len(found) - of_first)
            assert found == [(p, n, 2 * n + p) for p in (0, 1) for n in range(counts[p])]
            assert seen <= len(found) <= at[0] + 50
            seen = len(found)


@OURS
def test_history_and_tail_in_a_batch_while_a_client_writes(estate: Estate) -> None:
    topic = estate.topics.create(partitions=2)
    send(estate, topic, 0, 500)
    wait_for_checkpoint(estate.node, topic)
    with producing(estate, topic, 500) as at:
        wait_until(lambda: at[0] >= 600, "the client writes")
        frame = history_and_tail(
            estate.spark,
            topic,
            directories=str(estate.node.data_dir),
            kafka={"kafka.bootstrap.servers": estate.node.bootstrap},
        )
        found = sorted((row.partition, row.offset, int(row.value)) for row in frame.collect())
    # Each partition was read up to its own moment.
    of_first = sum(1 for partition, _, _ in found if not partition)
    counts = (of_first, len(found) - of_first)
    assert min(counts) >= 300
    assert found == [(partition, n, 2 * n + partition) for partition in (0, 1) for n in range(counts[partition])]


@OURS
def test_history_and_tail_as_a_stream_while_a_client_writes(estate: Estate, tmp_path: Path) -> None:
    topic = estate.topics.create(partitions=2)
    output, checkpoint = tmp_path / "output", tmp_path / "checkpoint"

    def united(of: str = topic, isolation: str = "read_committed") -> DataFrame:
        return history_and_tail(
            estate.spark,
            of,
            directories=[str(estate.node.data_dir)],
            kafka={"kafka.bootstrap.servers": estate.node.bootstrap},
            checkpoint=str(checkpoint),
            isolation=isolation,
            columns=["value"],
        )

    send(estate, topic, 0, 300)
    wait_for_checkpoint(estate.node, topic)
    with producing(estate, topic, 300) as at:
        query = into(united(), output, checkpoint)
        boundary = Path(f"{checkpoint}-boundary.json")
        kept = boundary.read_bytes()
        wait_until(
            lambda: sum(each.numInputRows for each in query.recentProgress) > 400, "the tail is read", timeout_s=120
        )
    run_to_the_end(query)
    send(estate, topic, at[0], 100)
    run_to_the_end(into(united(), output, checkpoint))
    assert written_to(estate, output) == list(range(at[0] + 100))
    assert boundary.read_bytes() == kept

    with pytest.raises(WrongOption, match="new checkpoint"):
        united(isolation="read_uncommitted")
    with pytest.raises(WrongOption, match="new checkpoint"):
        united("mixed")
    boundary.unlink()
    with pytest.raises(WrongOption, match="where its history ended is not known"):
        united()
