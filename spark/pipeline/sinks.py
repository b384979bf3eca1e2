"""The sinks of the results.

Kafka topics are written at least once: a batch that is repeated after a crash is written again. A result whose key is
its identity (windows, sessions, conversions) is then the same value under the same key. The lake has each event once.
Events that a batch drops by its watermark are dead letters before the batch is committed (`behind`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline import behind, transforms
from pipeline import checkpoint as checkpoints
from pipeline.checkpoint import SparkFiles
from pipeline.config import Config
from pipeline.explain import shortened
from pipeline.lake import Lake, LakeError, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# A dead letter's headers make it larger than the record was: only the topic's max.message.bytes must decide.
MAX_REQUEST_BYTES = 16 * 1024 * 1024
#: The name under which Spark's report has the number of rows that a batch has written.
WRITTEN = "written"


@dataclass(frozen=True, slots=True)
class Trigger:
    """The start of the next batch: until all present records have been read (`once`), or every `seconds`."""

    once: bool = False
    seconds: float = 0

    def on(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(self.seconds * 1000)} milliseconds")


def to_kafka(
    frame: DataFrame, config: Config, topic: str, checkpoint: str, trigger: Trigger, name: str
) -> StreamingQuery:
    """Start a query that writes key, value and (if there) headers to a topic, at least once."""
    writer = (
        frame.writeStream.format("kafka")
        .queryName(name)
        .outputMode("append")
        .options(**_kafka_options(config))
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
    )
    return trigger.on(writer).start()


def upserts_to_kafka(
    frame: DataFrame, config: Config, topic: str, checkpoint: str, trigger: Trigger, name: str
) -> StreamingQuery:
    """Start a query that writes key and value to a topic, at least once, and the events that it drops as dead
    letters."""
    from pyspark.sql import functions as F

    spark = frame.sparkSession  # a batch has another session, which does not know the query
    written_down = SparkFiles(spark, checkpoint)

    def write(batch: DataFrame, batch_id: int) -> None:
        with _shortened():
            _write(batch, config, topic)
            _write_dropped(spark, config, name, written_down, batch_id)

    counted = frame.observe(WRITTEN, F.count(F.lit(1)).alias("rows"))
    writer = counted.writeStream.queryName(name).foreachBatch(write).option("checkpointLocation", checkpoint)
    return trigger.on(writer.outputMode("append")).start()


def to_raw_topics(frame: DataFrame, config: Config, checkpoint: str, trigger: Trigger, name: str) -> StreamingQuery:
    """Start a query that writes records to the topics that they name, at least once, except those in the lake."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            with _shortened():
                records = _not_in_lake(batch, config).select("topic", "key", "value", "headers")
                records.write.format("kafka").options(**_kafka_options(config)).save()
        finally:
            batch.unpersist()

    writer = frame.writeStream.queryName(name).foreachBatch(write).option("checkpointLocation", checkpoint)
    return trigger.on(writer.outputMode("append")).start()


def _not_in_lake(batch: DataFrame, config: Config) -> DataFrame:
    """Return the rows whose event is not in the lake. It reads only the days of these events, and no day without a
    lake."""
    from pyspark.sql import functions as F

    days = [row.date for row in batch.select("date").distinct().collect()]
    if not days:
        return batch
    try:
        known = read(batch.sparkSession, config.lake.path)
    except LakeError:
        return batch
    return batch.join(known.where(F.col("date").isin(days)).select("event_id"), "event_id", "left_anti")


def _write(frame: DataFrame, config: Config, topic: str) -> None:
    frame.write.format("kafka").options(**_kafka_options(config)).option("topic", topic).save()


def _write_dropped(
    spark: SparkSession, config: Config, name: str, files: SparkFiles, batch_id: int, time: Column | None = None
) -> None:
    letters = behind.letters(spark, config, name, files, batch_id, time)
    if letters is not None:
        _write(letters, config, config.topics.dead_letters)


def _kafka_options(config: Config) -> dict[str, str]:
    return {"kafka.max.request.size": str(MAX_REQUEST_BYTES), **config.kafka_options()}


@contextmanager
def _shortened() -> Iterator[None]:
    """Shorten Java's errors within a batch for Spark, which searches them to find if the query was only stopped."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise RuntimeError(f"py4j.protocol.Py4JJavaError: {shortened(str(error))}") from None


def to_lake(frame: DataFrame, config: Config, checkpoint: str, trigger: Trigger, name: str) -> StreamingQuery:
    """Start a query that writes events to the lake, exactly once, and compacts it between the batches.

    Raises:
        LakeError: the lake is another checkpoint's, is damaged, has other columns, or cannot be at this place.
    """
    from pyspark.sql import functions as F

    lake = Lake(frame.sparkSession, config.lake.path, job=name)
    written_down = SparkFiles(frame.sparkSession, checkpoint)
    lake.claim(checkpoints.query_id(written_down))

    def write(batch: DataFrame, batch_id: int) -> None:
        query_id = checkpoints.query_id(written_down)
        assert query_id is not None, "Spark writes it down before it plans a batch"
        planned, ends = checkpoints.plan(written_down, batch_id), checkpoints.ends(written_down, batch_id)
        with _shortened():
            lake.commit(batch, query_id, batch_id, planned, ends)
            _write_dropped(frame.sparkSession, config, name, written_down, batch_id, transforms.arrival())
            lake.compact(config.lake.compact_min_files, config.lake.target_file_bytes)

    events = frame.withColumns({"date": F.to_date("event_time"), "topic": F.col("source.topic")})
    writer = events.writeStream.queryName(name).foreachBatch(write).option("checkpointLocation", checkpoint)
    try:
        query = trigger.on(writer.outputMode("append")).start()
    except Exception:
        lake.close()
        raise
    lake.close_behind(query)
    return query
