"""Jobs as they run: their lines and metrics, how they stop, and what they say of records that are gone."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from compat_tests.clients import Record, wait_until
from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.spark.pipeline.raw import clicked, configured
from compat_tests.suite import NOW_MS
from compat_tests.topics import Topics
from pipeline import checkpoint, job, sinks, sources
from pipeline.broker import Broker, Partition
from pipeline.checkpoint import SparkFiles
from pipeline.config import Config, LakeConfig, Source
from pipeline.config import Topics as Names
from pipeline.errors import DoesNotFitError
from pipeline.explain import explain
from pipeline.job import Job
from pipeline.metrics import Metrics
from pipeline.progress import Progress
from pipeline.queries import DEAD_LETTERS
from pipeline.sinks import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow
ONCE = Trigger(once=True)


class World:
    """Topics on a real node, and the smallest job that there is: it copies."""

    def __init__(self, broker: Node, topics: Topics, folder: Path) -> None:
        self.topics = topics
        self.clicks = topics.create()
        self.bootstrap = broker.bootstrap
        self.config = Config(
            checkpoints=str(folder / "checkpoints"),
            lake=LakeConfig(path=str(folder / "lake")),
            kafka={"bootstrap.servers": broker.bootstrap},
            topics=Names(self.clicks, *(topics.create() for _ in range(6))),
        )
        self.copy = Job("copy", lambda config: [config.topics.clicks], self._copy)

    def _copy(self, spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
        rows = sources.raw(spark, config, [config.topics.clicks]).select("key", "value")
        return sinks.to_kafka(rows, config, config.topics.windows, config.checkpoint("copy"), trigger, "copy")

    def lossy(self) -> Config:
        return replace(self.config, source=Source(fail_on_data_loss=False))

    def write(self, count: int) -> None:
        self.send([Record(b"k", b"%d" % number, (), NOW_MS) for number in range(count)])

    def send(self, records: list[Record]) -> None:
        ConfluentClient().produce(self.bootstrap, self.clicks, records)

    def read(self, topic: str) -> list[Record]:
        return ConfluentClient().consume(self.bootstrap, topic)

    def delete_before(self, offset: int) -> None:
        for future in self.topics.admin.delete_records([TopicPartition(self.clicks, 0, offset)]).values():
            future.result(30)


@pytest.fixture
def world(broker: Node, topics: Topics, tmp_path: Path) -> World:
    return World(broker, topics, tmp_path)


def test_a_schema_version_that_nobody_knows_is_a_dead_letter_a_line_and_a_metric(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    good = clicked(b"{}")
    world.send([Record(b"k", good.value, (("schema-version", b"9"),), NOW_MS)])
    assert job.run(spark, [DEAD_LETTERS], world.config, ONCE) == 0
    said = capfd.readouterr().err
    assert "dead-letters batch 0: 1 rows in " in said
    assert "0 behind the end, 1 written" in said
    [letter] = world.read(world.config.topics.dead_letters)
    assert dict(letter.headers)["dlq.reason"] == b"unknown-schema-version"
    [metric] = world.read(world.config.topics.metrics)
    assert metric.key == b"dead-letters"
    found = json.loads(metric.value or b"")
    assert (found["job"], found["batch"], found["rows"], found["written"]) == ("dead-letters", 0, 1, 1)


def test_a_batch_after_idle_time_has_its_line(spark: SparkSession, world: World) -> None:
    """Spark reports of time without a batch under the number of the batch that comes."""
    lines: list[str] = []
    metrics = Metrics(world.config.kafka, world.config.topics.metrics)
    progress = Progress(None, metrics, lines.append)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1000")
    world.write(3)
    query = world.copy.start(spark, world.config, Trigger())
    try:
        wait_until(
            lambda: query.lastProgress and "addBatch" not in query.lastProgress.durationMs, "idle time", timeout_s=120
        )
        progress.look([query])
        world.write(7)
        wait_until(lambda: progress.look([query]) or len(lines) > 1, "the next batch is told", timeout_s=120)
    finally:
        query.stop()
        metrics.close()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    assert [line.split(" rows")[0] for line in lines] == ["copy batch 0: 3", "copy batch 1: 7"]


def test_records_that_retention_deleted_between_two_starts(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.write(10)
    assert job.run(spark, [world.copy], world.config, ONCE) == 0
    world.write(20)
    world.delete_before(17)
    capfd.readouterr()
    assert job.run(spark, [world.copy], world.config, ONCE) == 3
    said = capfd.readouterr().err
    assert f"{world.clicks}-0: 7 records (offsets 10 to 16): deleted" in said
    assert "fail_on_data_loss = false" in said
    assert "Exception" not in said

    assert job.run(spark, [world.copy], world.lossy(), ONCE) == 0
    said = capfd.readouterr().err
    assert said.count("LOST") == 1, "not a second time when it is seen in the batch"
    assert f"copy: LOST {world.clicks}-0: 7 records (offsets 10 to 16)" in said
    assert len(world.read(world.config.topics.windows)) == 10 + 13
    metrics = [json.loads(record.value or b"") for record in world.read(world.config.topics.metrics)]
    assert [metric["lost"]["records"] for metric in metrics if "lost" in metric] == [7]


def test_records_that_go_while_the_job_runs(spark: SparkSession, world: World) -> None:
    """Nobody has looked before: only the batch itself shows it."""
    world.write(10)
    assert job.run(spark, [world.copy], world.config, ONCE) == 0
    world.write(20)
    world.delete_before(17)
    query = world.copy.start(spark, world.config, ONCE)
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination()
    told = explain(ended.value, world.config)
    assert isinstance(told, DoesNotFitError)
    assert world.clicks in told.message
    assert "\tat " not in str(told)

    query = world.copy.start(spark, world.lossy(), ONCE)
    query.awaitTermination()
    lines: list[str] = []
    broker, metrics = Broker(world.config.kafka), Metrics(world.config.kafka, world.config.topics.metrics)
    Progress(broker, metrics, lines.append).look([query])
    broker.close()
    metrics.close()
    assert len(lines) == 2
    assert "13 rows" in lines[0]
    assert f"copy: LOST {world.clicks}-0: 7 records (offsets 10 to 16)" in lines[1]


def test_brokers_that_do_not_answer_are_named(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.broker.TIMEOUT_MS", 500)
    away = replace(world.config, kafka={"bootstrap.servers": "localhost:1"})
    assert job.run(spark, [world.copy], away, ONCE) == 1
    said = capfd.readouterr().err
    assert "localhost:1" in said
    assert "Is the broker running" in said
    assert "Traceback" not in said


def test_a_batch_that_runs_is_finished_before_the_program_ends(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch waits until the program has begun to stop, and has looked at it once."""
    stopping = threading.Event()
    real = job.finish

    def finish(queries: list[StreamingQuery], look: object) -> None:
        real(queries, stopping.set)

    def write(batch: DataFrame, batch_id: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(60)

    def start(spark: SparkSession, config: Config, trigger: Trigger) -> StreamingQuery:
        writer = sources.raw(spark, config, [config.topics.clicks]).writeStream.foreachBatch(write).queryName("waits")
        return trigger.on(writer.option("checkpointLocation", config.checkpoint("waits"))).start()

    monkeypatch.setattr(job, "finish", finish)
    world.write(5)
    handler = signal.getsignal(signal.SIGTERM)
    waits = Job("waits", world.copy.topics, start)
    assert job.run(spark, [waits], world.config, Trigger()) == 0
    assert signal.getsignal(signal.SIGTERM) is handler
    files = SparkFiles(spark, world.config.checkpoint("waits"))
    assert [name for name in files.names("commits") if name.isdigit()] == ["0"]
    assert checkpoint.position(files) == checkpoint.Position({Partition(world.clicks, 0): 5})


def test_what_is_written_down_beside_a_checkpoint_is_replaced_whole(spark: SparkSession, tmp_path: Path) -> None:
    files = SparkFiles(spark, str(tmp_path / "job"))
    assert files.names("commits") == []
    assert checkpoint.identity(files) is None
    for topic_id in ("one", "two"):
        checkpoint.write_identity(files, checkpoint.Identity("job", {"clicks": topic_id}))
        assert checkpoint.identity(files) == checkpoint.Identity("job", {"clicks": topic_id})
    assert [name for name in os.listdir(tmp_path / "job") if not name.startswith(".")] == ["pipeline.json"]


def java(text: str) -> Exception:
    return Exception(f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {text}")


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "another driver", "Stop one"),
        (
            "org.apache.kafka.common.errors.RecordTooLargeException: 5 bytes",
            "larger than the topic",
            "max.message.bytes",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Topic x not present in metadata after 60000 ms.",
            "Topic x not present in metadata",
            "Create it",
        ),
        (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out",
            "localhost:1 did not answer in time: Timed out",
            "when they are back",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 1, in y\npipeline.lake.manifest.LakeError: it is '
            "another's\nGive the old checkpoint\n\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)",
            "it is another's",
            "Give the old checkpoint",
        ),
    ],
)
def test_known_causes_are_told_without_javas_words(text: str, message: str, advice: str) -> None:
    told = explain(java(text), configured())
    assert told is not None
    assert message in told.message
    assert advice in told.advice
    assert "STREAM_FAILED" not in str(told)
    assert "\tat " not in str(told)


def test_what_is_not_known_is_left_as_spark_says_it() -> None:
    assert explain(java("java.lang.IllegalStateException: what"), configured()) is None
