"""Spark's Kafka source and sink, batch and streaming, with exact counts and contents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import ALL_COMPRESSIONS, NOW_MS, Record, wait_until
from testkit.needs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(broker: Node, topic: str, start: int, count: int, partitions: int = 2) -> list[Record]:
    numbers = range(start, start + count)
    records = [Record(b"k%d" % i, b"%d" % i, (("n", b"%d" % i),), NOW_MS + 1000 * i, i % partitions) for i in numbers]
    ConfluentClient().produce(broker.bootstrap, topic, records, compression="lz4", idempotent=True)
    return records


def batch(spark: SparkSession, broker: Node, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def stream(spark: SparkSession, broker: Node, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING) AS value").collect())


def test_batch_read_has_every_column_of_every_record(spark: SparkSession, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    written = write(broker, topic, 0, 100)
    rows = batch(spark, broker, topic, includeHeaders=True).collect()
    read = {(row.partition, row.offset): row for row in rows}
    assert len(rows) == len(read) == 100
    for i, record in enumerate(written):
        row = read[i % 2, i // 2]
        assert (bytes(row.key), bytes(row.value), row.topic) == (record.key, record.value, topic)
        assert int(row.timestamp.timestamp() * 1000 + 0.5) == record.timestamp_ms
        assert row.timestampType == 0
        assert [(header.key, bytes(header.value)) for header in row.headers] == [("n", record.value)]


#: The Java client, with which Spark writes, is tested with all of them in compat_tests/java.
COMPRESSIONS = [
    each if each in ("none", "zstd") else pytest.param(each, marks=pytest.mark.long(amount="300 rows"))
    for each in ALL_COMPRESSIONS
]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batch_write_stores_every_row(spark: SparkSession, broker: Node, topics: Topics, compression: str) -> None:
    topic = topics.create(partitions=3)
    rows = [(f"k{i}" if i % 4 else None, f"value {i}" if i % 5 else None, i % 3) for i in range(300)]
    frame = spark.createDataFrame(rows, "key string, value string, partition int").selectExpr(
        "CAST(key AS BINARY) AS key",
        "CAST(value AS BINARY) AS value",
        "partition",
        "array(named_struct('key', 'from', 'value', CAST('spark' AS BINARY))) AS headers",
    )
    (
        frame.write.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.compression.type", compression)
        .option("includeHeaders", "true")
        .option("topic", topic)
        .save()
    )
    stored = ConfluentClient().consume(broker.bootstrap, topic)
    found = sorted((r.partition, r.key or b"", r.value or b"", r.key is None, r.value is None) for r in stored)
    assert found == sorted(
        (partition, (key or "").encode(), (value or "").encode(), key is None, value is None)
        for key, value, partition in rows
    )
    assert {record.headers for record in stored} == {(("from", b"spark"),)}


def test_batch_read_between_offsets(spark: SparkSession, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 0, 60)
    starting = json.dumps({topic: {"0": 5, "1": -2}})
    ending = json.dumps({topic: {"0": 20, "1": -1}})
    frame = batch(spark, broker, topic, startingOffsets=starting, endingOffsets=ending)
    assert values(frame) == sorted([*range(10, 40, 2), *range(1, 60, 2)])


def test_starting_timestamp(spark: SparkSession, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 0, 60)
    assert values(batch(spark, broker, topic, startingTimestamp=NOW_MS + 24_001)) == list(range(25, 60))
    between = batch(spark, broker, topic, startingTimestamp=NOW_MS + 10_000, endingTimestamp=NOW_MS + 20_000)
    assert values(between) == list(range(10, 20))
    per_partition = json.dumps({topic: {"0": NOW_MS + 50_000, "1": NOW_MS}})
    by_partition = batch(spark, broker, topic, startingOffsetsByTimestamp=per_partition)
    assert values(by_partition) == sorted([*range(50, 60, 2), *range(1, 60, 2)])


def test_starting_timestamp_after_the_end_gives_nothing(spark: SparkSession, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 0, 4)
    late = {"startingTimestamp": NOW_MS + 10_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(batch(spark, broker, topic, **late)) == []


def test_min_partitions_splits_without_losing_or_repeating(spark: SparkSession, broker: Node, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 0, 400)
    frame = batch(spark, broker, topic, minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert values(frame) == list(range(400))


def test_several_topics_by_pattern(spark: SparkSession, broker: Node, topics: Topics) -> None:
    prefix = topics.name()
    for number in (1, 2):
        write(broker, topics.create(partitions=2, name=f"{prefix}-{number}"), number * 100, 10)
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribePattern", f"{prefix}-.*")
        .load()
    )
    assert values(frame) == [*range(100, 110), *range(200, 210)]


def test_max_offsets_per_trigger_bounds_every_batch(
    spark: SparkSession, broker: Node, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    write(broker, topic, 0, 130)
    source = stream(spark, broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=30, includeHeaders=True)
    query = (
        source.writeStream.format("memory")
        .queryName("bounded")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(sizes) == 130
    assert max(sizes) <= 30
    assert len(sizes) == 5
    assert values(spark.table("bounded")) == list(range(130))


def test_streaming_from_a_timestamp_into_another_topic(
    spark: SparkSession, broker: Node, topics: Topics, tmp_path: Path
) -> None:
    source_topic, sink_topic = topics.create(partitions=2), topics.create(partitions=2)
    write(broker, source_topic, 0, 40)

    def run_to_the_end() -> None:
        query = (
            stream(spark, broker, source_topic, startingTimestamp=NOW_MS + 10_000)
            .select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", sink_topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    def stored() -> list[tuple[bytes | None, bytes | None]]:
        return sorted((r.key, r.value) for r in ConfluentClient().consume(broker.bootstrap, sink_topic))

    run_to_the_end()
    assert stored() == sorted((b"k%d" % i, b"%d" % i) for i in range(10, 40))
    write(broker, source_topic, 40, 20)
    run_to_the_end()
    assert stored() == sorted((b"k%d" % i, b"%d" % i) for i in range(10, 60))


@pytest.mark.long(amount="one kill; pipeline/test_proof.py kills the driver of all jobs")
def test_a_killed_stream_resumes_from_its_checkpoint(
    spark: SparkSession, broker: Node, topics: Topics, tmp_path: Path
) -> None:
    from compat_tests.spark.streaming_job import topic_to_files

    topic = topics.create(partitions=2)
    output, checkpoint = tmp_path / "output", tmp_path / "checkpoint"
    write(broker, topic, 0, 800)
    command = [sys.executable, "-m", "compat_tests.spark.streaming_job", broker.bootstrap, topic]
    with (tmp_path / "job.log").open("wb") as log:
        # A process session of its own, so that the driver's Python and its JVM are killed together, as on a lost
        # machine.
        job = subprocess.Popen(
            [*command, str(output), str(checkpoint), str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "spark")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:

        def killed_in_time() -> bool:
            assert job.poll() is None, (tmp_path / "job.log").read_text()[-3000:]
            return len(list((checkpoint / "commits").glob("[0-9]*"))) >= 3

        wait_until(killed_in_time, "the job has committed three batches", timeout_s=120)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(30)
    done_before = values(spark.read.schema("value string").json(str(output)))
    assert 0 < len(done_before) < 800, "killed on its way"

    write(broker, topic, 800, 100)
    query = topic_to_files(spark, broker.bootstrap, topic, output, checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    rows = spark.read.schema("value string, partition int, offset long").json(str(output)).collect()
    assert sorted(int(row.value) for row in rows) == list(range(900)), "every record once"
    assert all(row.partition == int(row.value) % 2 and row.offset == int(row.value) // 2 for row in rows)
