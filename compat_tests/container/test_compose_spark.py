"""docker/compose.spark.yaml: a secured cluster, a Spark with two workers, the pipeline and further jobs, Prometheus."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from compat_tests.container.conftest import Projects
from compat_tests.container.containers import docker
from compat_tests.container.host_clients import topics_at
from example import results, topics
from example.expected import compute
from example.generator import CLOSING_USER, Workload, generate
from example.records import Times
from pykbroker.tools.balance.load_file import read_loads
from testkit.clients import wait_until
from testkit.ports import steady_port

#: The engine may have to make images first, and a driver and two executors compile five queries.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long(amount="a day of a shop on a Spark of two workers")]

PATIENCE_S = 900.0
USERS = 100
#: As docker/spark/pipeline.toml has it.
TIMES = Times(slack_s=3600)


def asked(port: int, path: str) -> Any:
    """Return the JSON at a published port, or None as long as nothing serves there."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_the_pipeline_survives_its_workers(new_project: Projects, spark_images: dict[str, str], tmp_path: Path) -> None:
    project = new_project("compose.spark.yaml")
    master, prometheus = steady_port(), steady_port()
    project.more |= spark_images | {
        "PYKBROKER_USERS": str(USERS),
        "PYKBROKER_PORT_SPARK": str(master),
        "PYKBROKER_PORT_PROMETHEUS": str(prometheus),
    }
    project.compose("up", "-d")
    project.serves("node-1", "node-2", "node-3")
    reached = project.logged_in("admin", tmp_path / "authority.pem")

    def workers(count: int) -> bool:
        """Return True if the application has executors on this number of live workers."""
        said = asked(master, "/json/")
        return said is not None and (
            sum(worker["state"] == "ALIVE" and worker["coresused"] > 0 for worker in said["workers"]) == count
            and [app["state"] for app in said["activeapps"]] == ["RUNNING"]
        )

    wait_until(lambda: workers(2), "two workers run the pipeline", timeout_s=PATIENCE_S)
    answer = compute(list(generate(Workload(1, USERS))), TIMES)
    wait_until(lambda: "dead-letters" in topics_at(reached), "the feed made the topics", timeout_s=PATIENCE_S)
    for worker in ("spark-worker-1", "spark-worker-2"):
        wait_until(lambda: results.dead_letters(reached), "batches come to their end", timeout_s=PATIENCE_S)
        project.compose("kill", "-s", "KILL", worker)
        wait_until(lambda: workers(1), f"the pipeline goes on without {worker}", timeout_s=PATIENCE_S)
        project.compose("start", worker)
        wait_until(lambda: workers(2), f"the pipeline has {worker} again", timeout_s=PATIENCE_S)

    def came_out() -> bool:
        reasons = Counter({letter.place: letter.reason for letter in results.dead_letters(reached)}.values())
        # The records that close the day's windows make windows of their own.
        return reasons == answer.by_reason and answer.windows <= results.windows(reached)

    wait_until(came_out, "dead letters and windows are those that plain Python computes", timeout_s=PATIENCE_S)

    def in_the_lake() -> list[str]:
        """Return the ids of its events, as a reader without Spark sees them."""
        docker("cp", f"{project.containers()['spark-master']}:/data/lake", str(copied := tmp_path / uuid.uuid4().hex))
        found = DeltaTable(str(copied)).to_pandas(columns=["event_id", "user_id"])
        return sorted(found[found.user_id != CLOSING_USER].event_id)

    wait_until(
        lambda: in_the_lake() == sorted(answer.events), "the lake has each event, and each once", timeout_s=PATIENCE_S
    )

    def ran_once(name: str, key: str) -> list[dict[str, Any]]:
        """Return the lines of JSON of a program that runs in parallel to the pipeline."""
        said = project.compose("run", "--rm", "-T", name, patience_s=PATIENCE_S)
        return [json.loads(line) for line in said.splitlines() if line.startswith(f'{{"{key}"')]

    hours = ran_once("history", "hour")
    assert sum(each["records"] for each in hours) == len(topics.read(reached, "clicks")), "segments and brokers"
    assert [each["broker"] for each in ran_once("loads", "broker")] == [1, 2, 3]
    docker("cp", f"{project.containers()['spark-master']}:/data/loads.jsonl", str(file := tmp_path / "loads.jsonl"))
    assert {("clicks", 0), ("orders", 0)} <= read_loads(file.read_text(encoding="utf-8")).keys()

    def scraped() -> bool:
        said = asked(prometheus, "/api/v1/targets")
        return said is not None and [target["health"] for target in said["data"]["activeTargets"]] == ["up"] * 7

    wait_until(scraped, "Prometheus reads nodes, master, workers and driver", timeout_s=PATIENCE_S)
    project.down("-v")
