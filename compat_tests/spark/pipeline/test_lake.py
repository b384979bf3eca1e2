"""The lake with Spark and Delta Lake on a real disk, which is killed, repeated, overtaken, and changed and read by
others."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable

from compat_tests.spark.pipeline.s3 import stand_still
from pipeline import lake, sinks
from pipeline.config import Config, LakeConfig
from pipeline.lake import Lake, LakeError, LakeTakenError, delta_log, lease
from pipeline.lake.commits import BATCH, Commit, Note
from pipeline.lake.table_log import TableLog
from pipeline.schemas import EVENT
from pipeline.sinks import Trigger
from testkit import needs
from testkit.needs import ROOT
from testkit.oracle.kafka import resolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
DAY = datetime.datetime(2026, 3, 1, 23, 59, tzinfo=datetime.UTC)


def event(number: int) -> dict[str, object]:
    """Return an event; the events are for two topics, and two days in UTC."""
    when = (DAY + datetime.timedelta(seconds=number)).isoformat()
    source = {"topic": "orders" if number % 3 == 0 else "clicks", "partition": 0, "offset": number, "timestamp": when}
    return {"event_id": f"e{number}", "event_type": "view", "user_id": "u", "event_time": when, "source": source}


class Events:
    """A stream of events from files, one file for each batch. No broker is needed to test a sink."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.written = 0
        (folder / "input").mkdir()
        self.config = Config(
            checkpoints=str(folder),
            lake=LakeConfig(path=str(folder / "lake"), compact_min_files=3, target_file_bytes=10**6),
            kafka={},
        )

    def write(self, *batches: range) -> None:
        for numbers in batches:
            lines = "\n".join(json.dumps(event(number)) for number in numbers)
            (self.folder / "input" / f"{self.written:05d}.json").write_text(lines)
            self.written += 1

    def to_lake(self, checkpoint: str = "checkpoint", *, deduplicate: bool = False) -> None:
        """Write everything that is there; then the query ends."""
        frame = self.spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(str(self.folder / "input"))
        if deduplicate:
            frame = frame.withWatermark("event_time", "1 day").dropDuplicatesWithinWatermark(["event_id"])
        query = sinks.to_lake(frame, self.config, str(self.folder / checkpoint), Trigger(once=True), "lake")
        query.awaitTermination()

    def query_id(self) -> str:
        return str(json.loads((self.folder / "checkpoint/metadata").read_text())["id"])

    def batches(self, what: str) -> int:
        """Return Spark's last batch of which the checkpoint has `offsets` (it was planned) or `commits` (it is
        done)."""
        return max(int(path.name) for path in (self.folder / "checkpoint" / what).glob("[0-9]*"))

    def read(self) -> list[str]:
        return ids(lake.read(self.spark, self.config.lake.path))

    def log(self) -> TableLog:
        return TableLog(self.spark, self.config.lake.path)

    def commits(self) -> list[Commit]:
        log = self.log()
        return [log.read(version) for version in range(log.newest() + 1)]


def ids(frame: DataFrame) -> list[str]:
    return sorted(row.event_id for row in frame.select("event_id").collect())


def expected(count: int) -> list[str]:
    return sorted(f"e{number}" for number in range(count))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real HDFS with one data node."""
    program = HERE / "hdfs/MiniHdfs.java"
    home = tmp_path_factory.mktemp("hdfs")
    command = [needs.java(), "-Xmx512m", "-cp", str(resolved(HERE / "hdfs/pom.xml") / "*"), str(program), str(home)]
    with (home / "log").open("wb") as log:
        node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert node.stdin is not None
    assert node.stdout is not None
    address = node.stdout.readline().strip()
    assert address.startswith("hdfs:"), (home / "log").read_text()[-3000:]
    yield address
    node.stdin.close()
    node.wait(60)


EVERYWHERE = [
    "file",
    pytest.param("hdfs", marks=pytest.mark.long(amount="one lake on HDFS")),
    pytest.param("s3", marks=[pytest.mark.long(amount="one lake on S3"), pytest.mark.object_store]),
]


@pytest.fixture(params=EVERYWHERE)
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the path of a lake. On S3 another driver may follow after a second if a driver does not renew its lease."""
    monkeypatch.setattr(lease, "PATIENCE_S", 1.0)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    monkeypatch.setattr(lease, "RENEW_S", 0.3)
    made: list[Lake] = []
    make = Lake.__init__

    def noted(self: Lake, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        made.append(self)

    monkeypatch.setattr(Lake, "__init__", noted)
    yield str(tmp_path / "lake") if request.param == "file" else f"{request.getfixturevalue(request.param)}{tmp_path}"
    for each in made:
        each.close()


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Events:
    return Events(spark, tmp_path)


@pytest.mark.slow
def test_each_event_once_compacted_and_partitioned(events: Events) -> None:
    events.write(range(20), range(20, 40), range(40, 80), range(80, 120))
    events.to_lake()
    assert events.read() == expected(120)
    files = Lake(events.spark, events.config.lake.path).files()
    partitions = {(("date", f"2026-03-0{day}"), ("topic", topic)) for day in (1, 2) for topic in ("clicks", "orders")}
    assert {file.partition for file in files} == partitions
    written = sum(len(commit.adds) for commit in events.commits() if commit.operation == "WRITE")
    assert (written, len(files)) == (10, 6), "the three files of each topic of the first day are one"
    log = events.log()
    entries = [json.loads(line) for version in range(log.newest() + 1) for line in log.text(version).splitlines()]
    rows = [json.loads(entry["add"].get("stats", "{}")).get("numRecords", 0) for entry in entries if "add" in entry]
    assert sorted(rows) == [0] * 10 + [20, 40], "only compaction takes the time for statistics"
    row = lake.read(events.spark, events.config.lake.path).where("event_id = 'e61'").collect()[0]
    assert (row.date, row.topic, row.source.offset) == (datetime.date(2026, 3, 2), "clicks", 61)

    last = next(note for commit in reversed(events.commits()) if (note := commit.note) and note.kind == BATCH)
    assert (last.job, last.state.checkpoint, last.offsets) == ("lake", events.query_id(), [{"logOffset": 3}])


@pytest.mark.slow
def test_the_log_is_summed_up_beside_the_batches(
    spark: SparkSession, row: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    path = tmp_path / "lake"
    store = Lake(spark, str(path))
    store.claim(None)
    for batch in range(7):
        assert store.commit(row, "query", batch, f"plan {batch}")
        if store._delta._checkpoint is not None:
            store._delta._checkpoint.result(60)
    log = path / "_delta_log"
    assert sorted(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet")) == [3, 6]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 6
    for version in range(6):
        (log / f"{version:020d}.json").unlink()
    assert spark._jvm is not None
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert lake.read(spark, str(path)).count() == 7
    assert store.commit(row, "query", 7, "plan 7")
    assert lake.read(spark, str(path)).count() == 8


@pytest.mark.slow
def test_a_batch_that_comes_again_is_not_written_again(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query dies after the commit of the lake and before that of Spark. The deduplication continues with the right
    state."""
    events.write(range(20))
    events.to_lake(deduplicate=True)
    events.write(range(10, 30))
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "compact", died)
        with pytest.raises(Exception, match="died here"):
            events.to_lake(deduplicate=True)
    assert events.read() == expected(30), "it was committed"
    assert events.batches("commits") == events.batches("offsets") - 1, "and Spark does not know"

    events.write(range(40))
    events.to_lake(deduplicate=True)
    assert events.read() == expected(40)


def died(*_: object) -> None:
    raise RuntimeError("died here")


@pytest.fixture(scope="module")
def row(suite_session: SparkSession) -> DataFrame:
    return suite_session.sql("SELECT 'e0' AS event_id, 'clicks' AS topic, DATE'2026-03-01' AS date")


@pytest.mark.slow
def test_a_new_checkpoint_is_refused_until_the_lake_is_released(
    spark: SparkSession, row: DataFrame, tmp_path: Path
) -> None:
    """Delta alone would drop the first batches of the new checkpoint, because it has already seen their numbers."""
    path = str(tmp_path / "lake")
    first, another = Lake(spark, path), Lake(spark, path)
    first.claim(None)
    first.commit(row, "query", 0, "plan")
    for query in (None, "another"):
        with pytest.raises(LakeError, match=r"holds the events of another checkpoint .query query.") as refused:
            another.claim(query)
        assert "--adopt-lake" in refused.value.advice
    with pytest.raises(LakeError, match="holds the events of another checkpoint"):
        first.commit(row, "another", 1, "plan")

    Lake(spark, path).release()
    another.claim("another")
    assert another.commit(row, "another", 0, "plan"), "the same number, and written"
    assert len(ids(lake.read(spark, path))) == 2
    with pytest.raises(LakeError, match=r"holds the events of another checkpoint .query another."):
        Lake(spark, path).claim("query")


@pytest.mark.slow
def test_what_was_restored_from_a_backup_is_refused(spark: SparkSession, row: DataFrame, tmp_path: Path) -> None:
    """If Delta has seen the number of a batch, other events would be dropped; if it has not, some are missing."""
    path, backup = tmp_path / "lake", tmp_path / "backup"
    store = Lake(spark, str(path))
    store.claim(None)
    store.commit(row, "query", 0, "offsets 0")
    shutil.copytree(path, backup)
    store.commit(row, "query", 1, "offsets 1")
    with pytest.raises(LakeError, match=r"the checkpoint is older than the lake .*: it plans batch 1 anew"):
        store.commit(row, "query", 1, "other offsets")
    with pytest.raises(LakeError, match="batch 0 anew, and the lake has batches up to 1"):
        store.commit(row, "query", 0, "offsets 0")

    shutil.rmtree(path)
    shutil.copytree(backup, path)
    with pytest.raises(LakeError, match="is gone, or another one than this driver has seen"):
        store.commit(row, "query", 2, "offsets 2")
    store = Lake(spark, str(path))
    store.claim("query")
    with pytest.raises(LakeError, match="is older than the checkpoint: batch 1 should come next, not 2"):
        store.commit(row, "query", 2, "offsets 2")
    assert ids(lake.read(spark, str(path))) == ["e0"]


@pytest.mark.slow
def test_the_driver_that_was_overtaken_stops(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([], lake.SCHEMA)
    first, second = (Lake(spark, path) for _ in range(2))
    first.claim("query")
    assert first.commit(frame, "query", 0, "plan 0")
    stand_still(first)
    second.claim("query")
    with pytest.raises(LakeTakenError, match="another driver"):
        first.commit(frame, "query", 1, "plan 1")
    with pytest.raises(LakeTakenError, match="another driver"):
        first.compact(0, 10**6)
    assert not second.commit(frame, "query", 0, "plan 0")
    assert second.commit(frame, "query", 1, "plan 1")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before its transaction", "within its transaction"])
def test_the_driver_that_is_overtaken_while_it_writes_adds_nothing(
    spark: SparkSession, row: DataFrame, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The driver has looked and found no other driver. The lock of `file:` is off; on S3 the lease is not renewed."""
    monkeypatch.setattr(Lake, "_alone", lambda self: nullcontext())
    first, second = (Lake(spark, path) for _ in range(2))
    first.claim("query")
    append = Lake._append

    def overtaken(self: Lake, frame: DataFrame, note: Note, batch_id: int) -> None:
        stand_still(first)
        if self is not first:
            append(self, frame, note, batch_id)
        elif moment == "before its transaction":
            second.claim("query")
            append(self, frame, note, batch_id)
        else:
            waits, goes_on = tmp_path / "waits", tmp_path / "goes-on"

            def wait(topic: str) -> str:  # in a Python worker, when the transaction has begun
                waits.touch()
                while not goes_on.exists():
                    time.sleep(0.02)
                return topic

            from pyspark.sql import functions

            slow = frame.withColumn("user_id", functions.udf(wait)("topic"))
            with ThreadPoolExecutor(1) as pool:
                written = pool.submit(append, self, slow, note, batch_id)
                while not waits.exists():
                    time.sleep(0.02)
                second.claim("query")
                goes_on.touch()
                written.result()

    monkeypatch.setattr(Lake, "_append", overtaken)
    with pytest.raises(LakeTakenError, match="another driver"):
        first.commit(row, "query", 0, "plan 0")
    assert ids(lake.read(spark, path)) == []
    assert second.commit(row, "query", 0, "another plan")
    assert ids(lake.read(spark, path)) == ["e0"]


@pytest.mark.slow
def test_one_of_many_claims_at_a_time(spark: SparkSession, path: str) -> None:
    drivers = [Lake(spark, path) for _ in range(3)]

    def claim(driver: Lake) -> None:
        try:
            driver.claim("query")
        except LakeTakenError:
            assert driver._lease is not None, "without a lease the later one takes the lake"

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(claim, drivers))
    frame = spark.createDataFrame([], lake.SCHEMA)
    wins = 0
    for driver in drivers:
        try:
            wins += driver.commit(frame, "query", 0, "plan")
        except LakeError:  # taken by another one, or never claimed
            pass
    assert wins == 1


@pytest.mark.slow
def test_a_field_that_events_gain_becomes_a_column(spark: SparkSession, path: str) -> None:
    """A column, and a field within one. Earlier rows have null there, also after both are compacted."""
    old = "event_id string, source struct<topic: string>, date date, topic string"
    new = "event_id string, country string, source struct<topic: string, partition: int>, date date, topic string"
    day = datetime.date(2026, 3, 1)
    store = Lake(spark, path, schema=old)
    store.claim(None)
    store.commit(spark.createDataFrame([("e0", ("t",), day, "t"), ("e1", ("t",), day, "t")], old), "query", 0, "plan")

    store.close()
    later = Lake(spark, path, schema=new)
    later.claim("query")
    for batch in (1, 2):
        later.commit(spark.createDataFrame([("e2", "DE", ("t", 7), day, "t")], new), "query", batch, "plan")
    assert later.compact(2, 10**6) == 2
    found = sorted((row.event_id, row.country, row.source.partition) for row in lake.read(spark, path).collect())
    assert found == [("e0", None, None), ("e1", None, None), ("e2", "DE", 7), ("e2", "DE", 7)]

    later.close()
    with pytest.raises(
        LakeError, match=r"source.partition is no field of this pipeline's events; country is"
    ) as refused:
        Lake(spark, path, schema=old).claim("query")
    assert "or a later one" in refused.value.advice


@pytest.mark.slow
def test_a_table_of_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    spark.sql("SELECT 1 AS id, 2.5 AS amount, 'x' AS topic").write.format("delta").partitionBy("topic").save(path)
    for query in (None, "query"):
        with pytest.raises(LakeError, match="its log has no commit of this pipeline"):
            Lake(spark, path).claim(query)
    with pytest.raises(LakeError, match="is a Delta table of other columns: id is no field") as refused:
        Lake(spark, path).release()
    assert "amount is decimal(2,1), not decimal(12,2)" in refused.value.message
    assert "it is partitioned by topic, not by date, topic" in refused.value.message
    assert spark.read.format("delta").load(path).count() == 1


@pytest.mark.slow
def test_another_writer_is_found_and_what_changes_no_rows_is_let_pass(
    spark: SparkSession, row: DataFrame, path: str
) -> None:
    store = Lake(spark, path)
    store.claim(None)
    store.commit(row, "query", 0, "plan")
    store.commit(row, "query", 1, "plan")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 60 days')")
    theirs = DeltaTable.forPath(spark, path)
    theirs.optimize().executeCompaction()
    store.commit(row, "query", 2, "plan")

    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (note string)")
    theirs.delete("event_id = 'e0'")
    with pytest.raises(LakeError, match=r"another writer has changed columns of the lake .*ADD COLUMNS"):
        store.commit(row, "query", 3, "plan")
    store.close()
    store = Lake(spark, path, schema=f"{lake.SCHEMA}, note string")
    with pytest.raises(LakeError, match=r"columns of the lake .*, and 1 later ones") as refused:
        store.claim("query")
    assert "Nothing is lost" in refused.value.advice
    store.release()
    store.claim("query")
    assert not store.commit(row, "query", 2, "plan")
    assert store.commit(row, "query", 3, "plan"), "the checkpoint goes on behind its last batch"
    theirs.delete("event_id = 'e0'")
    with pytest.raises(LakeError, match=r"changed rows of the lake .* \(DELETE, .*Delta-Lake/4") as refused:
        store.commit(row, "query", 4, "plan")
    assert ids(lake.read(spark, path)) == []


@pytest.mark.slow
def test_the_statements_of_the_documentation_do_what_it_says(events: Events) -> None:
    """The statements are VACUUM and time travel of docs/lake.md, on a lake with a file that a killed driver left a week
    ago."""
    path = Path(events.config.lake.path)
    events.write(range(10), range(10, 20))
    events.to_lake()
    first_ms = (path / "_delta_log" / f"{1:020d}.json").stat().st_mtime_ns // 10**6  # Delta's time of a version
    left = next((path / "date=2026-03-01").rglob("*.parquet")).parent / "left-by-a-kill.parquet"
    left.write_bytes(b"half of a file")
    week_ago = time.time() - 7.5 * 24 * 3600
    os.utime(left, (week_ago, week_ago))

    page = (ROOT / "docs/lake.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    statements = [line.partition("--")[0].strip() for block in blocks for line in block.splitlines()]
    when = datetime.datetime.fromtimestamp(first_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    said = {}
    for statement in statements:
        if statement.startswith("CONVERT"):
            continue  # test_a_lake_of_an_earlier_version_is_converted
        here = re.sub(r"TIMESTAMP AS OF '.*'", f"TIMESTAMP AS OF '{when}'", statement.replace("/data/lake", str(path)))
        said[statement.replace("/data/lake", "")] = events.spark.sql(here).collect()
    history = said.pop("DESCRIBE HISTORY delta.``")
    noted = [json.loads(row.userMetadata)["kind"] for row in history if row.userMetadata]
    assert noted == ["batch", "batch", "claim"], "and VACUUM has commits without a note"
    counts = {statement: rows[0][0] for statement, rows in said.items() if "count" in statement}
    assert (len(counts), set(counts.values())) == (2, {10}), "versions of before the second batch"
    assert not left.exists()
    assert events.read() == expected(20)


@pytest.mark.long(amount="one lake")
def test_a_lake_of_an_earlier_version_is_converted(events: Events) -> None:
    """The conversion is that of docs/lake.md. The files are those of the earlier version, with the other files of the
    old log."""
    path = Path(events.config.lake.path)
    events.write(range(20))
    old = events.spark.read.schema(EVENT).json(str(events.folder / "input"))
    rows = old.selectExpr("*", "to_date(event_time) AS date", "source.topic AS topic")
    rows.write.partitionBy("date", "topic").parquet(str(path))
    (path / "_log").mkdir()
    (path / "_log" / "00000000000000000001.json").write_text("{}")
    with pytest.raises(LakeError, match="is of an earlier version of this pipeline"):
        events.to_lake()
    events.spark.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (date DATE, topic STRING)").collect()
    with pytest.raises(LakeError, match="no commit of this pipeline"):
        events.to_lake()
    Lake(events.spark, str(path)).release()
    events.to_lake()
    assert events.read() == sorted(2 * expected(20)), "and goes on: this checkpoint is a new one"


def test_a_lake_of_an_earlier_version_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_log").mkdir()
    with pytest.raises(LakeError, match="is of an earlier version of this pipeline"):
        Lake(spark, str(tmp_path)).claim(None)


def test_a_folder_with_other_things_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(LakeError, match=r"is no Delta table, and is not empty: it has holiday\.jpg"):
        Lake(spark, str(tmp_path)).claim(None)
    with pytest.raises(LakeError, match="there is no lake at"):
        lake.read(spark, str(tmp_path))


def test_a_lake_must_be_where_two_drivers_find_each_other(spark: SparkSession) -> None:
    with pytest.raises(LakeError, match="is on http:"):
        Lake(spark, "http://example.invalid/lake")
