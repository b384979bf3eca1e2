"""The settings of a session: packages, the settings of the lake, and the versions that must fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pyspark
import pytest

from pipeline import session
from pipeline.config import Config, LakeConfig
from testkit.project import EXTRAS

ROOT = Path(__file__).parents[2]
ON_S3 = "s3a://bucket/lake"


def test_delta_reads_its_log_in_two_tasks_unless_told_otherwise() -> None:
    key = "spark.databricks.delta.snapshotPartitions"
    assert session.settings({})[key] == "2"
    assert session.settings({key: "8"})[key] == "8"


@pytest.mark.parametrize(
    ("key", "ours", "own"),
    [
        ("spark.databricks.delta.properties.defaults.checkpointInterval", str(2**31 - 1), "10"),
        ("spark.databricks.delta.stats.collect", "false", "true"),
        ("spark.sql.streaming.pollingDelay", "200ms", "10ms"),  # a job that has nothing to read takes no core
        ("spark.python.sql.dataFrameDebugging.enabled", "false", "true"),
    ],
)
def test_what_makes_batches_slow_or_idle_jobs_busy_is_off_unless_told_otherwise(key: str, ours: str, own: str) -> None:
    assert session.settings({})[key] == ours
    assert session.settings({key: own})[key] == own


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        (("checkpoints", "hdfs://host/lake"), False),
        (("checkpoints", ON_S3), True),
        (("s3a://bucket/checkpoints", "lake"), True),
        (("checkpoints", "s3a-is-no-scheme/lake"), False),
    ],
)
def test_the_packages_of_an_object_store_come_where_one_is_used(places: tuple[str, str], wanted: bool) -> None:
    found = session.settings({}, places)["spark.jars.packages"].split(",")
    assert (session.OBJECT_STORE in found) is wanted
    assert found == session.packages(places).split(",")


def test_own_packages_and_extensions_stay() -> None:
    found = session.settings({"spark.jars.packages": "a:b:1", "spark.sql.extensions": "mine"}, [ON_S3])
    assert found["spark.jars.packages"] == f"a:b:1,{session.PACKAGES},{session.OBJECT_STORE}"
    assert found["spark.sql.extensions"] == f"mine,{session.EXTENSION}"


def test_the_log_of_a_lake_on_s3_is_written_by_the_pipelines_class() -> None:
    """Also where the configuration names another one: that one may overwrite commits."""
    key = "spark.delta.logStore.s3a.impl"
    assert session.settings({key: "io.delta.storage.S3SingleDriverLogStore"})[key] == "pipeline.lake.ExclusiveLogStore"


def test_hadoops_parts_are_of_the_release_that_spark_has() -> None:
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert session.OBJECT_STORE.endswith(f":{jar.stem.removeprefix('hadoop-client-api-')}")


@pytest.mark.parametrize(("own", "silenced"), [({}, [session.STREAMS_LOGGER]), ({"spark.log.level": "ERROR"}, [])])
def test_what_ended_a_query_is_said_once_and_not_below_the_stack_that_spark_logs(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], silenced: list[str]
) -> None:
    """A log level in the configuration is kept."""
    found: list[str] = []
    monkeypatch.setattr("pyspark.sql.SparkSession", SimpleNamespace(builder=MagicMock()))
    monkeypatch.setattr(session, "_silence", lambda made, logger: found.append(logger))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    kafka = {"bootstrap.servers": "localhost:1"}
    session.make("name", Config("checkpoints", LakeConfig("lake"), kafka, spark=own), "local[1]")
    assert found == silenced


def test_the_documented_commands_name_the_packages() -> None:
    for page in ("docs/pipeline.md", "spark/README.md"):
        assert session.PACKAGES in (ROOT / page).read_text(encoding="utf-8")
    assert f"{session.PACKAGES},{session.OBJECT_STORE}\n" in (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
    assert f"delta-spark=={session.DELTA}" in EXTRAS["pipeline"]
