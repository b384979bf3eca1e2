"""Jobs while they run, with their lines and metrics, their stop, and their messages about records that are gone."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from compat_tests.spark.pipeline.copying import ONCE, World
from compat_tests.spark.pipeline.driver import write_config
from compat_tests.spark.pipeline.raw import NOW_MS, Raw, click, clicked, order
from pipeline import checkpoint, job, lake, session, sources
from pipeline.broker import Broker, Partition
from pipeline.checkpoint import SparkFiles
from pipeline.config import Config
from pipeline.errors import DoesNotFitError
from pipeline.explain import explain
from pipeline.job import Job
from pipeline.metrics import Metrics
from pipeline.progress import Progress
from pipeline.queries import CONVERSIONS, DEAD_LETTERS, LAKE, SESSIONS, WINDOWS, redrive
from pipeline.schemas import CLICKS
from pipeline.sinks import Trigger
from pipeline.stopping import finish as pipeline_finish
from testkit.clients import Record, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.slow


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
    """Spark reports time without a batch with the number of the next batch."""
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

        def told() -> bool:
            progress.look([query])
            return len(lines) > 1

        wait_until(told, "the next batch is told", timeout_s=120)
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
    """No check has run before, so only the batch itself shows it."""
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
    real = pipeline_finish

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


def as_record(raw: Raw) -> Record:
    return Record(raw.key, raw.value, raw.headers or (), raw.timestamp_ms)


def test_a_topic_that_is_made_anew_beneath_a_running_job(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has nothing to read for an hour. After that it would continue in the middle of the new topic."""
    monkeypatch.setattr(job, "LOOK_S", 0.05)
    monkeypatch.setattr(job, "TOPICS_S", 0)
    world.write(5)

    ended = threading.Event()

    def recreate() -> None:
        commits = Path(world.config.checkpoint("copy")) / "commits"
        try:
            wait_until(lambda: (commits / "0").exists(), "the first batch is done", timeout_s=120)
            world.topics.delete(world.clicks)
            world.topics.create(name=world.clicks)
        finally:
            if not ended.wait(120):
                os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=recreate)
    thread.start()
    try:
        code = job.run(spark, [world.copy], world.config, Trigger(seconds=3600))
    finally:
        ended.set()
        thread.join()
    assert code == 3
    said = capfd.readouterr().err
    assert f"{world.clicks}-0: the topic was deleted and created again" in said
    assert "To read the new topic from its beginning" in said


@pytest.mark.parametrize(
    "jobs",
    [
        # One job of each sink. Conversions have a watermark in two sources.
        pytest.param([LAKE, CONVERSIONS], id="lake-and-conversions"),
        pytest.param([LAKE, WINDOWS, SESSIONS, CONVERSIONS], marks=pytest.mark.long(amount="four jobs"), id="all"),
    ],
)
def test_good_events_behind_the_watermark_are_dead_letters_of_each_job_and_an_alert(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str], jobs: list[Job]
) -> None:
    """The clock of one client is 59 minutes ahead. Other clients send events of half an hour ago, which is allowed."""
    minute_ms = 60_000
    ahead_ms, late_ms = NOW_MS + 59 * minute_ms, NOW_MS - 30 * minute_ms
    for topic, made in ((world.clicks, click), (world.orders, order)):
        world.send([as_record(replace(made(event_id="ahead", time_ms=ahead_ms), timestamp_ms=ahead_ms))], topic)
    assert job.run(spark, jobs, world.config, ONCE) == 0
    assert world.read(world.config.topics.dead_letters) == []
    late = [as_record(replace(click(event_id=f"late-{n}", time_ms=late_ms), timestamp_ms=NOW_MS)) for n in range(3)]
    newest = as_record(replace(click(event_id="in-time", time_ms=NOW_MS), timestamp_ms=NOW_MS))
    world.send([*late, newest])
    capfd.readouterr()
    assert job.run(spark, jobs, world.config, ONCE) == 0

    said = capfd.readouterr().err
    letters = [(record, dict(record.headers)) for record in world.read(world.config.topics.dead_letters)]
    for name in (each.name for each in jobs):
        found = [(record, headers) for record, headers in letters if headers["dlq.job"] == name.encode()]
        assert sorted(headers["dlq.event-id"] or b"" for _, headers in found) == [b"late-0", b"late-1", b"late-2"], name
        assert {headers["dlq.reason"] for _, headers in found} == {b"behind-watermark"}
        assert sorted(record.value or b"" for record, _ in found) == [record.value for record in late]
        assert f"{name}: ALERT 3 events were behind the watermark" in said
    assert len(letters) == 3 * len(jobs)
    assert sorted(row.event_id for row in lake.read(spark, world.config.lake.path).collect()) == ["ahead", "in-time"]
    metrics = [json.loads(record.value or b"") for record in world.read(world.config.topics.metrics)]
    alerts = {(each["job"], each["alert"], each["events"]) for each in metrics if "alert" in each}
    assert alerts == {(each.name, "behind-watermark", 3) for each in jobs}
    assert sum(each.get("dropped_late", 0) for each in metrics) == 3 * len(jobs)


def test_dead_letters_of_a_newer_version_reach_the_lake_once_after_the_upgrade(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days later, the lake's watermark has long passed these events."""
    day_ms = 24 * 3600 * 1000
    old = replace(click(event_id="of-version-3", time_ms=NOW_MS - 3 * day_ms), timestamp_ms=NOW_MS - 3 * day_ms)
    own = (("schema-version", b"3"), ("trace", b"t"))
    world.send([Record(b"its key", old.value, own, old.timestamp_ms), as_record(click(event_id="newest"))])
    assert job.run(spark, [DEAD_LETTERS, LAKE], world.config, ONCE) == 0
    assert job.run(spark, [redrive()], world.config, ONCE) == 0
    assert len(world.read(world.clicks)) == 2, "the code of before cannot read it either"

    monkeypatch.setitem(CLICKS, "3", CLICKS["1"])
    assert job.run(spark, [redrive()], world.config, ONCE) == 0
    *_, again = world.read(world.clicks)
    assert (again.key, again.value) == (b"its key", old.value)
    added = (("redrive.count", b"1"), ("redrive.timestamp", str(old.timestamp_ms).encode()))
    assert again.headers == (*own, *added)
    assert job.run(spark, [DEAD_LETTERS, LAKE], world.config, ONCE) == 0

    def events() -> list[str]:
        return sorted(row.event_id for row in lake.read(spark, world.config.lake.path).collect())

    assert events() == ["newest", "of-version-3"]
    assert len(world.read(world.config.topics.dead_letters)) == 1
    # Another upgrade reads all dead letters again, and finds this event in the lake.
    monkeypatch.setitem(CLICKS, "4", CLICKS["1"])
    assert job.run(spark, [redrive()], world.config, ONCE) == 0
    assert len(world.read(world.clicks)) == 3


def test_a_topic_that_takes_records_far_ahead_of_its_clock_is_refused_before_the_start(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "message.timestamp.after.max.ms"
    entry = ConfigEntry(key, "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, world.clicks, incremental_configs=[entry])
    world.topics.admin.incremental_alter_configs([resource])[resource].result(30)
    assert job.run(spark, [world.copy], world.config, ONCE) == 1
    said = capfd.readouterr().err
    assert f"{key} of topic {world.clicks} (3600000 ms) is more than max_skew_s (60000 ms)" in said
    assert f"--alter --topic {world.clicks} --add-config {key}=60000\n" in said
    world.write(1)
    assert job.run(spark, [world.copy], world.lossy(), ONCE) == 0
    assert f"{key} of topic {world.clicks} (3600000 ms)" in capfd.readouterr().err


def test_a_dead_letter_that_its_topic_does_not_take(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    """The record itself is small enough, but not with the headers that describe it. Nothing is lost in the meantime."""
    letters = world.config.topics.dead_letters

    def most_bytes(value: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, letters, incremental_configs=[entry])
        world.topics.admin.incremental_alter_configs([resource])[resource].result(30)

    most_bytes(1000)
    broken = b"x" * 850
    world.send([as_record(clicked(broken))])
    assert job.run(spark, [DEAD_LETTERS], world.config, ONCE) == 1
    said = capfd.readouterr().err
    assert "a record is larger than the topic that it is written to takes" in said
    assert "max.message.bytes" in said
    assert "\tat " not in said
    assert world.read(letters) == []

    most_bytes(100_000)
    assert job.run(spark, [DEAD_LETTERS], world.config, ONCE) == 0
    assert [letter.value for letter in world.read(letters)] == [broken]


def test_a_client_setting_that_spark_refuses_is_a_message(
    spark: SparkSession, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    config = replace(world.config, kafka={**world.config.kafka, "key.deserializer": "mine"})
    assert job.run(spark, [world.copy], config, ONCE) == 1
    said = capfd.readouterr().err
    assert "key.deserializer" in said
    assert "Traceback" not in said
    assert "\tat " not in said


def test_another_checkpoint_goes_on_with_a_lake_only_when_it_is_told_to(
    spark: SparkSession,
    world: World,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Run the whole program as a command line starts it, with the one session of all tests."""
    monkeypatch.setattr(session, "make", lambda name, config, master: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(checkpoints: str, *options: str) -> int:
        config = world.config
        tables = {
            "kafka": config.kafka,
            "lake": {"path": config.lake.path},
            "topics": {name: getattr(config.topics, name) for name in config.topics.__slots__},
        }
        path = write_config(tmp_path / "pipeline.toml", tables, checkpoints=str(tmp_path / checkpoints))
        return job.main([LAKE], ["--config", str(path), "--once", *options])

    world.send([as_record(click(event_id="first"))])
    assert run("one") == 0
    capfd.readouterr()
    assert run("another") == 1
    said = capfd.readouterr().err
    assert "holds the events of another checkpoint" in said
    assert "--adopt-lake" in said

    assert run("another", "--adopt-lake") == 0
    ids = sorted(row.event_id for row in lake.read(spark, world.config.lake.path).collect())
    assert ids == ["first", "first"], "the other one has read from its own beginning, as was said"
    assert run("one") == 1, "the first one's lake it is no more"
