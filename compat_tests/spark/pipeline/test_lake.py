"""The lake with Spark, Parquet files and Hadoop's FileSystem on a real disk."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests import needs
from compat_tests.oracle.kafka import resolved
from compat_tests.spark.pipeline.memory_files import MemoryFiles
from pipeline import lake, sinks
from pipeline.config import Config, LakeConfig
from pipeline.lake import Lake, LakeError, LakeTakenError
from pipeline.lake.hadoop import HadoopFiles
from pipeline.lake.log import Files
from pipeline.schemas import EVENT
from pipeline.sinks import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
DAY = datetime.datetime(2026, 3, 1, 23, 59, tzinfo=datetime.UTC)


def event(number: int) -> dict[str, object]:
    """Two topics, and two days as UTC has them."""
    when = (DAY + datetime.timedelta(seconds=number)).isoformat()
    source = {"topic": "orders" if number % 3 == 0 else "clicks", "partition": 0, "offset": number, "timestamp": when}
    return {"event_id": f"e{number}", "event_type": "view", "user_id": "u", "event_time": when, "source": source}


class Events:
    """A stream of events from files: one file, one batch. No broker is needed to try a sink."""

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
        """Everything that is there, then the query ends."""
        frame = self.spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(str(self.folder / "input"))
        if deduplicate:
            frame = frame.withWatermark("event_time", "1 day").dropDuplicatesWithinWatermark(["event_id"])
        query = sinks.to_lake(frame, self.config, str(self.folder / checkpoint), Trigger(once=True), "lake")
        query.awaitTermination()

    def batches(self, what: str) -> int:
        """Spark's last batch of which the checkpoint has `offsets` (it was planned) or `commits` (it is done)."""
        return max(int(path.name) for path in (self.folder / "checkpoint" / what).glob("[0-9]*"))

    def listed(self) -> list[str]:
        return ids(self.spark.read.parquet(self.config.lake.path))

    def read(self) -> list[str]:
        return ids(lake.read(self.spark, self.config.lake.path))

    def staged(self) -> list[Path]:
        return list((Path(self.config.lake.path) / "_staging").rglob("*.parquet"))

    def parquet_files(self) -> list[str]:
        found = Path(self.config.lake.path).glob("date=*/topic=*/*.parquet")
        return sorted(str(path.relative_to(self.config.lake.path)) for path in found)


def ids(frame: DataFrame) -> list[str]:
    return sorted(row.event_id for row in frame.select("event_id").collect())


def expected(count: int) -> list[str]:
    return sorted(f"e{number}" for number in range(count))


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real HDFS, with one data node."""
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


EVERYWHERE = ["file", pytest.param("hdfs", marks=pytest.mark.long(amount="one lake on HDFS"))]


@pytest.fixture(params=EVERYWHERE)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "lake") if request.param == "file" else f"{request.getfixturevalue('hdfs')}{tmp_path}"


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Events:
    return Events(spark, tmp_path)


@pytest.mark.slow
def test_each_event_once_compacted_and_partitioned(events: Events) -> None:
    events.write(range(40), range(40, 80), range(80, 120))
    events.to_lake()
    assert events.listed() == events.read() == expected(120)
    partitions = {f"date=2026-03-0{day}/topic={topic}" for day in (1, 2) for topic in ("clicks", "orders")}
    assert {path.rpartition("/")[0] for path in events.parquet_files()} == partitions
    assert len(events.parquet_files()) < 3 * len(partitions) - 2, "compacted"
    row = lake.read(events.spark, events.config.lake.path).where("event_id = 'e61'").collect()[0]
    assert (row.date, row.topic, row.source.offset) == (datetime.date(2026, 3, 2), "clicks", 61)


@pytest.mark.slow
def test_a_batch_that_comes_again_is_not_written_again(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """Died after the lake's commit, before Spark's: and the deduplication goes on with the state it should have."""
    events.write(range(20))
    events.to_lake(deduplicate=True)
    events.write(range(10, 30))
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "compact", died)
        with pytest.raises(Exception, match="died here"):
            events.to_lake(deduplicate=True)
    assert events.listed() == expected(30), "it was committed"
    assert events.batches("commits") == events.batches("offsets") - 1, "and Spark does not know"

    events.write(range(40))
    events.to_lake(deduplicate=True)
    assert events.listed() == events.read() == expected(40)


@pytest.mark.slow
def test_died_between_the_commit_and_the_moves(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    events.write(range(20))
    events.to_lake()
    events.write(range(20, 40))
    with monkeypatch.context() as patched:
        patched.setattr(HadoopFiles, "move", lambda files, *_: died() if events.staged() else None)
        with pytest.raises(Exception, match="died here"):
            events.to_lake()
    assert events.listed() == expected(20), "the listing does not have it yet"
    assert events.read() == expected(40), "the log has, and knows where the files are"

    events.to_lake()
    assert events.listed() == events.read() == expected(40)
    assert not events.staged()


@pytest.mark.slow
def test_died_before_the_commit(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    events.write(range(20))
    publish = HadoopFiles.publish
    with monkeypatch.context() as patched:
        patched.setattr(
            HadoopFiles, "publish", lambda self, path, text: publish(self, path, text) if "claim" in text else died()
        )
        with pytest.raises(Exception, match="died here"):
            events.to_lake()
    assert events.read() == []
    assert events.staged(), "written, not committed"
    events.to_lake()
    assert events.listed() == events.read() == expected(20)


def died(*_: object) -> None:
    raise RuntimeError("died here")


@pytest.mark.slow
def test_a_new_checkpoint_is_refused_until_the_lake_is_released(events: Events) -> None:
    events.write(range(20))
    events.to_lake()
    with pytest.raises(LakeError, match="another checkpoint") as refused:
        events.to_lake("another")
    assert "--adopt-lake" in refused.value.advice
    assert not (events.folder / "another").exists(), "no query was started"

    Lake(events.spark, events.config.lake.path).release()
    events.to_lake("another")
    assert len(events.listed()) == 40, "the new checkpoint reads everything again, as the message said"
    with pytest.raises(LakeError, match="another checkpoint"):
        events.to_lake()


@pytest.mark.slow
def test_a_restored_checkpoint_is_refused(events: Events) -> None:
    """Its last batch was taken away, and is planned anew: with other events, or the same ones, who knows."""
    events.write(range(20), range(20, 40))
    events.to_lake()
    for folder in ("offsets", "commits", "sources/0"):
        for name in ("1", ".1.crc"):
            (events.folder / "checkpoint" / folder / name).unlink(missing_ok=True)
    events.write(range(40, 60))
    with pytest.raises(Exception, match="the checkpoint is older than the lake"):
        events.to_lake()
    assert events.listed() == expected(40)


@pytest.mark.slow
def test_the_driver_that_was_overtaken_stops(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([], lake.SCHEMA)
    first, second = (Lake(spark, path) for _ in range(2))
    first.claim("query")
    assert first.commit(frame, "query", 0, "plan 0")
    second.claim("query")
    with pytest.raises(LakeTakenError, match="another driver"):
        first.commit(frame, "query", 1, "plan 1")
    assert not second.commit(frame, "query", 0, "plan 0")
    assert second.commit(frame, "query", 1, "plan 1")


@pytest.mark.slow
def test_files_of_an_older_schema_are_compacted_with_newer_ones(spark: SparkSession, path: str) -> None:
    store = Lake(spark, path)
    store.claim(None)
    columns = "event_id, 'clicks' AS topic, DATE'2026-03-01' AS date"
    old = spark.sql(f"SELECT {columns} FROM VALUES ('e0'), ('e1') AS t(event_id)")
    new = spark.sql(f"SELECT {columns}, 'DE' AS country FROM VALUES ('e2') AS t(event_id)")
    for batch, frame in enumerate((old, new, new)):
        store.commit(frame, "query", batch, "plan")
    assert store.compact(2, 10**6) == 2
    assert [file.rows for file in store.files()] == [4]
    found = sorted((row.event_id, row.country) for row in spark.read.parquet(path).collect())
    assert found == [("e0", None), ("e1", None), ("e2", "DE"), ("e2", "DE")]


def test_a_lake_must_be_where_a_file_can_be_created_if_absent(spark: SparkSession) -> None:
    with pytest.raises(LakeError, match="is on http:"):
        Lake(spark, "http://example.invalid/lake")


# What the protocol relies on: the same of Hadoop's file systems as of the one in memory, on which it is proved.


@pytest.fixture(params=["memory", *EVERYWHERE])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "memory":
        return MemoryFiles()
    root = str(tmp_path) if request.param == "file" else f"{request.getfixturevalue('hdfs')}{tmp_path}"
    return HadoopFiles(request.getfixturevalue("spark"), root)


def test_a_file_is_published_once(files: Files) -> None:
    assert files.publish("_log/1.json", "one")
    assert not files.publish("_log/1.json", "two")
    assert files.read("_log/1.json") == "one"
    assert files.names("_log") == ["1.json"]


def test_one_of_many_publishes_a_file(spark: SparkSession, path: str) -> None:
    files = HadoopFiles(spark, path)
    for version in range(10):
        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(lambda text, v=version: files.publish(f"_log/{v}", text), "abcd"))  # type: ignore[misc]
        assert sum(won) == 1
        assert files.read(f"_log/{version}") == "abcd"[won.index(True)]


def test_a_file_is_moved(files: Files) -> None:
    assert files.publish("_staging/a/x.parquet", "rows")
    files.move("_staging/a/x.parquet", "p/x.parquet")
    assert files.read("p/x.parquet") == "rows"
    assert not files.exists("_staging/a/x.parquet")
    with pytest.raises(FileNotFoundError):
        files.move("_staging/a/x.parquet", "p/y.parquet")


def test_what_is_not_there(files: Files) -> None:
    assert files.names("_log") == []
    assert not files.exists("_log/1.json")
    with pytest.raises(FileNotFoundError):
        files.read("_log/1.json")
    files.delete("_staging")


def test_a_folder_is_deleted_with_all_that_is_in_it(files: Files) -> None:
    assert files.publish("a/b/c.json", "text")
    assert files.publish("ab.json", "text")
    files.delete("a")
    assert not files.exists("a/b/c.json")
    assert files.exists("ab.json")
