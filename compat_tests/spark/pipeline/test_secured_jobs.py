"""The jobs on a node with SASL_SSL, SCRAM-SHA-512 and ACLs, as a user with the permissions that docs/pipeline.md
lists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.spark.pipeline.driver import write_config
from compat_tests.spark.pipeline.test_proof import compare
from example import results, topics
from example.expected import compute
from example.generator import Workload, generate
from example.records import Record
from example.secured_node import PIPELINE, SHOP, SecuredNode, secured_node
from example.sending import Sender
from pipeline import broker, config, job, lake, permissions, preflight, session, sources
from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.explain import explain as pipeline_explain
from pipeline.job import Job
from pipeline.loads_job import TOPIC as LOADS
from pipeline.queries import ALL, DEAD_LETTERS, LAKE
from testkit.needs import ROOT
from testkit.nodes.told_loads import REPORTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORKLOAD = Workload(users=30, partitions=2)
NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class Day:
    """A node that contains a day of a shop."""

    node: SecuredNode
    records: list[Record]
    sender: Sender

    def configure(self, home: Path, *, spark: Mapping[str, str] = NONE, **security: str) -> Path:
        return write_config(
            home / "pipeline.toml",
            {
                "kafka": {"bootstrap.servers": self.node.bootstrap},
                "security": {**self.node.security, **security},
                "lake": {"path": str(home / "lake")},
                "times": {name: getattr(WORKLOAD.times, name) for name in WORKLOAD.times.__slots__},
                "spark": spark,
            },
            checkpoints=str(home / "checkpoints"),
        )


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    with secured_node(tmp_path_factory.mktemp("secured"), REPORTING) as node:
        topics.create(node.admin, WORKLOAD.partitions)
        node.allow(PIPELINE, permissions.needed(config.parse(MINIMUM)))
        node.allow(SHOP, {"clicks": "WRITE", "orders": "WRITE"})
        records = generate(WORKLOAD)
        sender = Sender(node.shop)
        sender.send(records)
        yield Day(node, records, sender)


MINIMUM = {"checkpoints": "c", "lake": {"path": "l"}, "kafka": {"bootstrap.servers": "localhost:1"}}


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Job], Path], int]:
    """Run the whole program as a command line starts it, with the one session of all tests."""
    monkeypatch.setattr(session, "make", lambda name, config, master: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    return lambda jobs, path: job.main(jobs, ["--config", str(path), "--once"])


def password_in(path: Path) -> str:
    return Path(tomllib.loads(path.read_text())["security"]["password_file"]).read_text()


def plans(spark: SparkSession) -> str:
    """Return all that Spark's UI and its event log show of the statements so far; the texts of both are the same."""
    jvm_session: Any = spark._jsparkSession
    executions = jvm_session.sharedState().statusStore().executionsList()
    shown = []
    for number in range(executions.size()):
        execution = executions.apply(number)
        shown += [execution.description(), execution.details(), execution.physicalPlanDescription()]
        shown.append(execution.modifiedConfigs().toString())
    return "\n".join(shown)


def test_every_job_does_its_work_with_these_acls_and_shows_no_password(
    spark: SparkSession,
    day: Day,
    run: Callable[[Sequence[Job], Path], int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = day.configure(tmp_path)
    assert run(ALL, path) == 0
    told = capfd.readouterr()
    assert "clicks: message.timestamp.after.max.ms is not known" in told.err, "a user without DescribeConfigs"
    loaded = config.load(path)
    found = results.read(lake.read(spark, loaded.lake.path), day.node.admin)
    written = {(one.topic, one.record.partition, one.offset): one.record for one in day.sender.delivered}
    compare(found, compute(day.records, WORKLOAD.times), written)
    assert all([found.rows, found.letters, found.windows, found.sessions, found.conversions]), "each job has written"
    reports = [json.loads(message.value() or b"") for message in topics.read(day.node.admin, "pipeline-metrics")]
    assert {report["job"] for report in reports} == {job.name for job in ALL}

    password = password_in(path)
    raw: Any = sources.raw(spark, loaded, ["clicks"])
    batch: Any = spark.read.format("kafka").options(**loaded.kafka_options()).option("subscribe", "clicks").load()
    planned = plans(spark)
    assert "Kafka" in planned
    shown = [told.out, told.err, planned, repr(loaded)]
    shown += [frame._jdf.queryExecution().toString() for frame in (raw, batch)]
    for text in shown:
        assert password not in text
    everything = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in everything if password.encode() in file.read_bytes()] == [], "checkpoints and lake"


LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
logger.clients.name = org.apache.kafka
logger.clients.level = debug
logger.connector.name = org.apache.spark.sql.kafka010
logger.connector.level = debug
"""


@pytest.mark.long(amount="a program with Spark's event log")
@pytest.mark.parametrize("program", sorted(path.name for path in (ROOT / "spark" / "jobs").glob("*.py")))
def test_each_program_runs_and_its_logs_have_no_password(day: Day, tmp_path: Path, program: str) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "log4j2.properties").write_text(LOG4J)
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.log.level": "INFO",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(tmp_path / 'log4j2.properties').as_uri()}",
        "spark.driver.memory": "768m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    path = day.configure(tmp_path, spark=logged)
    words = ["--once"]
    if program == "cluster_loads.py":
        day.node.allow(PIPELINE, {LOADS: "READ"})
        words = ["--window", "2", "--file", str(tmp_path / "loads.jsonl")]
    command = [sys.executable, str(ROOT / "spark" / "jobs" / program), "--config", str(path), *words]
    with (tmp_path / "job.log").open("wb") as log:
        code = subprocess.run(
            [*command, "--master", "local[2]"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "spark")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=500,
        ).returncode
    assert code == 0, (tmp_path / "job.log").read_text()[-3000:]
    everything = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(b"SparkListenerSQLExecutionStart" in data for data in everything.values()), "there is an event log"
    assert b"sasl.jaas.config = [hidden]" in everything[tmp_path / "job.log"], "the clients show their settings"
    assert [file for file, data in everything.items() if password_in(path).encode() in data] == []


def test_each_acl_is_needed_and_is_named_before_the_start(day: Day, tmp_path: Path) -> None:
    loaded = config.load(day.configure(tmp_path))
    wanted = permissions.needed(loaded)
    with closing(broker.Broker(loaded.kafka)) as asked:
        for each in ALL:
            uses = [*each.topics(loaded), *each.writes(loaded)]
            preflight.allowed(loaded, each.name, uses, asked)
            for topic in uses:
                day.node.forbid(PIPELINE, {topic: wanted[topic]})
                try:
                    with pytest.raises(PipelineError) as refused:
                        preflight.allowed(loaded, each.name, uses, asked)
                finally:
                    day.node.allow(PIPELINE, {topic: wanted[topic]})
                assert refused.value.message == (
                    f"{each.name}: TOPIC_AUTHORIZATION_FAILED: User:pipeline lacks {wanted[topic]} on topic {topic}"
                )


def test_a_job_without_an_acl_stops_before_it_starts(
    day: Day, run: Callable[[Sequence[Job], Path], int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = day.configure(tmp_path)
    day.node.forbid(PIPELINE, {"orders": "READ"})
    try:
        assert run([LAKE], path) == 1
    finally:
        day.node.allow(PIPELINE, {"orders": "READ"})
    said = capfd.readouterr().err
    assert "lake: TOPIC_AUTHORIZATION_FAILED: User:pipeline lacks READ on topic orders\n" in said
    assert "--allow-principal User:pipeline --operation Read --topic orders" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("topic", "operation"), [("clicks", "READ"), ("dead-letters", "WRITE")])
def test_a_job_whose_acl_goes_stops_with_kafkas_error(
    day: Day,
    run: Callable[[Sequence[Job], Path], int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    operation: str,
) -> None:
    def allowed_and_then_not(config: Config, *asked: Any) -> None:
        day.node.allow(PIPELINE, {topic: "DESCRIBE"})
        day.node.forbid(PIPELINE, {topic: operation})

    errors: list[BaseException] = []

    def explain(error: BaseException, config: Config) -> PipelineError | None:
        errors.append(error)
        return pipeline_explain(error, config)

    monkeypatch.setattr(job, "explain", explain)
    monkeypatch.setattr(preflight, "allowed", allowed_and_then_not)
    path = day.configure(tmp_path)
    try:
        assert run([DEAD_LETTERS], path) == 1
    finally:
        day.node.allow(PIPELINE, {topic: operation})
        day.node.forbid(PIPELINE, {topic: "DESCRIBE"})
    said = capfd.readouterr().err
    assert f"TopicAuthorizationException: Not authorized to access topics: [{topic}]" in said
    assert f"User:pipeline lacks {operation} on topic {topic}\n" in said
    assert f"--operation {operation.capitalize()} --topic {topic}\n" in said
    assert "\tat " not in said
    for text in (said, *map(str, errors)):
        assert password_in(path) not in text
    assert "TopicAuthorizationException" in str(errors[0])


def test_a_wrong_password_is_a_message_without_it(
    day: Day,
    run: Callable[[Sequence[Job], Path], int],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "TIMEOUT_MS", 2_000)
    monkeypatch.setenv("WRONG", "not-what-it-is")
    path = day.configure(tmp_path, password_file="", password_env="WRONG")
    assert run([LAKE], path) == 1
    said = capfd.readouterr().err
    assert f"{day.node.bootstrap}: " in said
    assert "[security] right?" in said
    assert "not-what-it-is" not in said
