"""The lake on S3. It is exact although drivers are killed, allows one driver at a time, and is read by others. It is
refused where it cannot work.

The S3 server is moto's, on loopback. The tests of test_lake.py run on it too.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from deltalake import DeltaTable

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.spark.pipeline.copying import RAW
from compat_tests.spark.pipeline.driver import LOOK_S, Driver, newest_of, write_config
from compat_tests.spark.pipeline.s3 import S3, SECRET_KEY, before_each_request, stand_still
from compat_tests.spark.session import short_lived
from compat_tests.topics import Topics
from pipeline import lake
from pipeline.lake import Lake, LakeError, LakeTakenError, lease, object_store
from pipeline.lake.commits import BATCH, Commit, decode
from testkit.clients import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.object_store, pytest.mark.timeout(1800)]
#: The limit for something that happens in a driver that has to start first, on a machine that does other work too.
PATIENCE_S = 300
EVENTS = 600
A_BATCH = 40
KILLS = 3


class Job:
    """The lake's job with its lake and its checkpoint on S3, and what is visible of it there."""

    def __init__(self, s3: S3, broker: Node, topics: Topics, home: Path) -> None:
        self.s3 = s3
        self.folder = uuid.uuid4().hex
        self.path = f"s3a://{s3.bucket}/{self.folder}/lake"
        self.bootstrap = broker.bootstrap
        self.clicks = topics.create(config=RAW)
        names = {"clicks": self.clicks, "orders": topics.create(config=RAW), "metrics": topics.create()}
        self.config = write_config(
            home / "pipeline.toml",
            {
                "kafka": {"bootstrap.servers": broker.bootstrap},
                "source": {"max_offsets_per_trigger": A_BATCH},
                "topics": names,
                "lake": {"path": self.path, "compact_min_files": 4},
                "spark": {
                    **{f"spark.hadoop.{key}": value for key, value in s3.hadoop.items()},
                    "spark.driver.memory": "768m",
                    "spark.driver.extraJavaOptions": short_lived(),
                    "spark.sql.shuffle.partitions": "2",
                    "spark.ui.enabled": "false",
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.sql.warehouse.dir": str(home / "warehouse"),
                },
            },
            checkpoints=f"s3a://{s3.bucket}/{self.folder}/checkpoints",
        )
        self.driver = Driver(home, self.config, "lake")
        self.second = Driver(home, self.config, "lake", "second")

    def send(self, numbers: range) -> None:
        headers = (("schema-version", b"2"), ("content-type", b"application/json"))
        now_ms = round(time.time() * 1000)
        values = [
            {"event_id": f"e{n}", "type": "view", "user": "u", "product": "p", "country": "DE", "time_ms": now_ms}
            for n in numbers
        ]
        records = [Record(b"u", json.dumps(value).encode(), headers) for value in values]
        ConfluentClient().produce(self.bootstrap, self.clicks, records)

    def done(self) -> int:
        """Return the last batch that is done according to the checkpoint."""
        return newest_of(self.s3.names(f"{self.folder}/checkpoints/lake/commits/"))

    def log(self) -> list[str]:
        return [name for name in self.s3.names(f"{self.folder}/lake/_delta_log/") if name.endswith(".json")]

    def commit(self, name: str) -> Commit:
        return decode(int(name.removesuffix(".json")), self.s3.read(f"{self.folder}/lake/_delta_log/{name}"))

    def batches(self) -> list[int]:
        """Return the batches in the lake, read from the notes of their commits."""
        notes = [self.commit(name).note for name in self.log()]
        return [note.state.position.batch for note in notes if note and note.kind == BATCH and note.state.position]

    def is_between(self, done_before: int = -2) -> bool:
        """Return True if a batch in the lake is not in the checkpoint, and the checkpoint has moved beyond
        `done_before`."""
        if self.done() <= done_before:
            return False
        for name in reversed(self.log()):
            note = self.commit(name).note
            if note and note.kind == BATCH and note.state.position:
                return note.state.position.batch > self.done()
        return False

    def lease(self) -> str:
        [name] = self.s3.names(f"{self.folder}/lake/{lease.FOLDER}/")
        return self.s3.read(f"{self.folder}/lake/{lease.FOLDER}/{name}")


@pytest.fixture
def started(s3_server: S3, broker: Node, topics: Topics, tmp_path: Path) -> Iterator[Job]:
    found = Job(s3_server, broker, topics, tmp_path)
    yield found
    found.driver.kill()
    found.second.kill()


CONTINUOUS = ("--continuous", "--trigger", "0", "--master", "local[2]")


@pytest.mark.long(amount=f"{KILLS} kills between the lake's commit and the checkpoint's, two drivers at once")
def test_the_job_is_exact_on_s3_and_runs_once(started: Job, spark: SparkSession, s3: str) -> None:
    job = started
    job.send(range(EVENTS))
    between = 0
    while between < KILLS:
        job.driver.start(*CONTINUOUS)
        job.driver.wait_for(partial(job.is_between, job.done()), "is between", timeout_s=PATIENCE_S, look_s=LOOK_S)
        job.driver.kill()
        between += job.is_between()
        assert max(job.batches()) * A_BATCH < EVENTS, "it was always too late for the kill"
    killed_at = time.monotonic()

    # The next driver waits for the lease of the one that was killed.
    last, claims = job.lease(), len(job.log())
    job.driver.start(*CONTINUOUS)
    job.driver.wait_for(lambda: len(job.log()) > claims, "the next driver takes the lake", timeout_s=PATIENCE_S)
    waited = time.monotonic() - killed_at
    assert waited >= lease.PATIENCE_S
    print(f"a driver that was killed was followed after {waited:.1f} s, with the start of the next one")
    assert json.loads(job.lease())["driver"] != json.loads(last)["driver"]
    job.driver.wait_for(lambda: (job.done() + 1) * A_BATCH >= EVENTS, "everything is read", timeout_s=PATIENCE_S)

    # A second driver stops while the first one lives, and writes nothing.
    log = job.log()
    job.second.run_to_the_end(*CONTINUOUS, timeout_s=PATIENCE_S, code=1)
    assert "another driver (process " in job.second.tail()
    assert "renews its lease, so this one stops" in job.second.tail()
    assert "Traceback" not in job.second.tail()
    assert job.log() == log

    # A driver that ends by itself gives the lease back.
    job.send(range(EVENTS, EVENTS + A_BATCH))
    job.driver.stop(timeout_s=PATIENCE_S)
    assert json.loads(job.lease())["ended"]
    began = time.monotonic()
    job.driver.run_to_the_end("--once", "--master", "local[2]", timeout_s=PATIENCE_S)
    print(f"the last run took {time.monotonic() - began:.1f} s")

    expected = sorted(f"e{number}" for number in range(EVENTS + A_BATCH))
    assert sorted(row.event_id for row in lake.read(spark, job.path).select("event_id").collect()) == expected
    assert {batch: count for batch, count in Counter(job.batches()).items() if count > 1} == {}
    address, options = job.path.replace("s3a:", "s3:"), job.s3.options
    assert sorted(polars.read_delta(address, storage_options=options)["event_id"]) == expected
    assert sorted(DeltaTable(address, storage_options=options).to_pandas()["event_id"]) == expected
    for written in (job.driver.log, job.second.log):
        assert SECRET_KEY not in written.read_text()
    for name in job.s3.names(f"{job.folder}/"):
        if not name.endswith(".parquet"):
            assert SECRET_KEY not in job.s3.read(f"{job.folder}/{name}"), name


@pytest.fixture
def row(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'e0' AS event_id, 'clicks' AS topic, DATE'2026-03-01' AS date")


@pytest.fixture
def place(s3: str, tmp_path: Path) -> str:
    return f"{s3}{tmp_path}/lake"


def count(spark: SparkSession, place: str) -> int:
    return lake.read(spark, place).count()


@pytest.mark.long(amount="one commit that is held back")
def test_a_commit_that_arrives_late_overwrites_nothing(
    spark: SparkSession, row: DataFrame, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry of the log is on its way to S3 while another driver takes the lake with the same version. Delta alone
    would overwrite that entry."""
    monkeypatch.setattr(lease, "PATIENCE_S", 1.0)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    first, second = Lake(spark, place), Lake(spark, place)
    first.claim("query")
    held: list[str] = []

    def hold_back(environ: dict[str, Any]) -> None:
        if not held and environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("00001.json"):
            held.append(environ["HTTP_IF_NONE_MATCH"])
            stand_still(first)
            second.claim("query")

    before_each_request(monkeypatch, hold_back)
    with pytest.raises(LakeTakenError, match="another driver"):
        first.commit(row, "query", 0, "plan")
    assert held == ["*"]
    assert count(spark, place) == 0
    assert second.commit(row, "query", 0, "plan"), "the claim is still there, and this is the first batch"
    assert count(spark, place) == 1
    second.close()


@pytest.mark.long(amount="one object, 8 writers")
def test_one_of_many_creates_an_object(spark: SparkSession, place: str) -> None:
    object_store.install(spark)
    files = object_store.S3AFiles(spark, place)
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: files.create("object", f"writer {number}"), range(8)))
    assert created.count(True) == 1
    assert files.read("object") == f"writer {created.index(True)}"
    assert files.create("object", f"writer {created.index(True)}"), "a repetition whose first answer was lost"


@pytest.mark.long(amount="one lake")
def test_a_store_without_conditional_writes_is_refused(
    spark: SparkSession, row: DataFrame, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_request(monkeypatch, lambda environ: environ.pop("HTTP_IF_NONE_MATCH", None))
    with pytest.raises(LakeError, match="creates an object that is there already"):
        Lake(spark, place).claim(None)
    with pytest.raises(LakeError, match="there is no lake"):
        lake.read(spark, place)


@pytest.mark.long(amount="two lakes")
def test_what_cannot_be_reached_is_said_in_a_line(spark: SparkSession, s3: str) -> None:
    with pytest.raises(LakeError, match=r"the lake s3a://no-such-bucket/lake cannot be used: .*ucket") as refused:
        Lake(spark, "s3a://no-such-bucket/lake").claim(None)
    assert "spark.hadoop.fs.s3a." in refused.value.advice
    assert "\n" not in refused.value.message


@pytest.mark.long(amount="one lake")
def test_old_files_on_s3_are_vacuumed_and_old_versions_read(
    spark: SparkSession, row: DataFrame, place: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Lake(spark, place)
    store.claim(None)
    for batch in range(3):
        store.commit(row, "query", batch, "plan")
    assert store.compact(3, 10**6) == 2
    assert spark.sql(f"SELECT count(*) FROM delta.`{place}` VERSION AS OF 2").collect()[0][0] == 2
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{place}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    store.commit(row, "query", 3, "plan")

    conditions: list[str | None] = []

    def note(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith(".json"):
            conditions.append(environ.get("HTTP_IF_NONE_MATCH"))

    with monkeypatch.context() as patched:
        before_each_request(patched, note)
        theirs = DeltaTable(place.replace("s3a:", "s3:"), storage_options=s3_server.options)
        assert theirs.optimize.compact()["numFilesAdded"] == 1
    assert "*" in conditions, "deltalake creates its entry of the log only if it is absent"
    store.commit(row, "query", 4, "plan")
    store.close()
    assert count(spark, place) == 5, "VACUUM leaves the lease and what counts"
