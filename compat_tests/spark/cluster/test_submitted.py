"""Programs that are submitted with the wheels to a Spark with two workers, for clients of three secured nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.spark.cluster.secured import USER, Secured
from compat_tests.spark.cluster.standalone import PATIENCE_S, Standalone, Submission
from compat_tests.spark.pipeline.driver import Checkpoint, write_config
from compat_tests.spark.pipeline.test_proof import compare
from example import results, topics
from example.expected import compute
from example.generator import Workload, generate
from example.sending import Sender
from pipeline import config, lake, permissions
from pipeline.session import PACKAGES
from pykbroker.tools.balance.load_file import read_loads
from testkit.clients import wait_until
from testkit.needs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3
TOPIC = "visits"


@pytest.fixture(scope="module", autouse=True)
def _visits(secured: Secured) -> None:
    secured.create_topic(TOPIC, PARTITIONS)
    secured.produce(TOPIC, PARTITIONS, range(3000))


#: A day of a shop for the jobs of the pipeline.
DAY = Workload(users=60, partitions=2)


def rows(numbers: range) -> list[list[object]]:
    """Return the rows as read_segments.py writes them."""
    return sorted([n % PARTITIONS, n // PARTITIONS, f"k{n % 7}", str(n)] for n in numbers)


def test_segments_are_read_although_a_worker_is_killed(
    cluster: Standalone, secured: Secured, segments_wheel: Path, tmp_path: Path
) -> None:
    secured.wait_for_checkpoints({(TOPIC, number): 1000 for number in range(PARTITIONS)})
    secured.known.allow(USER, {TOPIC: "READ"})
    asked = {"topic": TOPIC, "directories": secured.directories, "kafka": secured.options()}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    program = Path(__file__).parent / "programs" / "read_segments.py"
    ran = cluster.submit(program, str(tmp_path), submission=Submission([segments_wheel], PACKAGES))
    first, second = cluster.workers

    def there(*names: str) -> bool:
        assert ran.runs(), ran.said()[-5000:]
        return all((tmp_path / name).exists() for name in names)

    wait_until(
        lambda: there(f"reading-{first}", f"reading-{second}"), "both workers are in a batch", timeout_s=PATIENCE_S
    )
    cluster.kill_worker(second)
    (tmp_path / "released").touch()
    wait_until(lambda: there("divided"), "the segments were read", timeout_s=PATIENCE_S)
    assert json.loads((tmp_path / "segments.json").read_text()) == rows(range(3000))
    cluster.start_worker()
    secured.produce(TOPIC, PARTITIONS, range(3000, 3900))
    (tmp_path / "goes-on").touch()
    assert ran.wait() == 0, ran.said()[-5000:]
    assert json.loads((tmp_path / "united.json").read_text()) == rows(range(3900))


@pytest.mark.long(amount="the load model, submitted to a cluster")
def test_the_load_model_of_secured_nodes(
    cluster: Standalone, secured: Secured, pipeline_wheel: Path, tmp_path: Path
) -> None:
    secured.known.allow(USER, {"__pykbroker_metrics": "READ"})
    path = write_config(
        tmp_path / "cluster.toml",
        {"kafka": {"bootstrap.servers": secured.bootstrap}, "security": secured.security},
    )
    file = tmp_path / "loads.jsonl"
    # In a long window one report that comes late, as on a busy machine, is less than the 5% that may be missing.
    words = ["--config", str(path), "--file", str(file), "--window", "30"]
    every = {(TOPIC, number) for number in range(PARTITIONS)}
    # The test above needs both workers. A job of one core starts one executor.
    submission = Submission([pipeline_wheel], PACKAGES, settings={"spark.cores.max": "1"})

    def has_told() -> bool:
        """Run the job. On a busy machine brokers report late, and the job says to wait, or leaves a partition out."""
        ran = cluster.submit(ROOT / "spark/jobs/cluster_loads.py", *words, submission=submission)
        code, said = ran.wait(), ran.said()
        if code == 1 and "wait until the brokers have reported for longer" in said:
            return False
        assert code == 0, said[-5000:]
        brokers = [json.loads(line) for line in said.splitlines() if line.startswith('{"broker"')]
        assert [each["broker"] for each in brokers] == [1, 2, 3]
        found = {place for place in read_loads(file.read_text(encoding="utf-8")) if place[0] == TOPIC}
        assert found <= every
        return found == every

    wait_until(has_told, "the brokers have reported for long enough", timeout_s=PATIENCE_S)


@pytest.mark.long(amount="a day of a shop, five jobs on two workers")
def test_the_jobs_of_the_pipeline_survive_a_worker(
    cluster: Standalone, secured: Secured, pipeline_wheel: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """All jobs run in one driver, as a user with the ACLs of docs/pipeline.md; a worker dies during a batch of the
    lake."""
    path = write_config(
        tmp_path / "pipeline.toml",
        {
            "kafka": {"bootstrap.servers": secured.bootstrap},
            "security": secured.security,
            "source": {"max_offsets_per_trigger": 250},
            "lake": {"path": str(tmp_path / "lake")},
            "times": {name: getattr(DAY.times, name) for name in DAY.times.__slots__},
        },
        checkpoints=str(tmp_path / "checkpoints"),
    )
    topics.create(secured.known.admin, DAY.partitions)
    secured.known.allow(USER, permissions.needed(config.load(path)))
    records = generate(DAY)
    sender = Sender(secured.known.shop)
    sender.send(records)
    ran = cluster.submit(
        ROOT / "spark/jobs/all.py",
        *("--config", str(path), "--once"),
        submission=Submission([pipeline_wheel], PACKAGES),
    )
    lake_job = Checkpoint(tmp_path / "checkpoints" / "lake")

    def in_a_batch() -> bool:
        assert ran.runs(), ran.said()[-5000:]
        return lake_job.planned > lake_job.committed

    wait_until(in_a_batch, "a batch of the lake is under way", timeout_s=PATIENCE_S)
    cluster.kill_worker(next(iter(cluster.workers)))
    cluster.start_worker()
    assert ran.wait() == 0, ran.said()[-5000:]
    found = results.read(lake.read(spark, str(tmp_path / "lake")), secured.known.admin)
    written = {(one.topic, one.record.partition, one.offset): one.record for one in sender.delivered}
    compare(found, compute(records, DAY.times), written)
