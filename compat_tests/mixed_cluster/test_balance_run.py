"""`pykbroker balance` on brokers of Apache Kafka with two directories each: a plan is made, run and killed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.mixed_cluster.conftest import NewCluster
from compat_tests.mixed_cluster.members import Cluster, Member
from pykbroker.__main__ import main
from pykbroker.tools.cluster import reassignments, replicas_on_disk, run_marks
from pykbroker.tools.cluster.replicas_on_disk import ReplicaName
from pykbroker.tools.commands.client_options import ClientOptions
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import command, environment
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow
PARTITIONS = 12
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    members = {10: Member("kafka", "controller")} | {number: Member("kafka", "broker") for number in BROKERS}
    with new_cluster(members, settings={"auto.leader.rebalance.enable": "false", "min.insync.replicas": "1"}) as made:
        made.start_all()
        made.serving(*BROKERS)
        yield made


def placed(cluster: Cluster, topic: str) -> list[list[int]]:
    rows = cluster.partitions(topic)
    return [list(rows[number].replica_nodes) for number in sorted(rows)]


def fill(cluster: Cluster, topic: str) -> None:
    """Write more into each partition than one fetch takes, because a throttle does not limit the first fetch."""
    cluster.create(topic, *[[1, 2]] * PARTITIONS)
    cluster.in_sync(topic)
    with Wire(cluster.address(1)) as wire:
        for number in range(PARTITIONS):
            for _ in range(3):
                assert wire.produce(topic, batch(b"x" * 700_000), partition=number).error_code == ErrorCode.NONE


def test_a_plan_is_carried_out(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(cluster, "balanced")
    at, file = ["-b", cluster.bootstrap], tmp_path / "plan.json"
    assert main(["balance", "plan", "--window", "0.5", "--file", str(file), *at]) == 0
    assert main(["balance", "run", str(file), "--throttle", "50000000", *at]) == 0, capsys.readouterr()
    assert " are as planned" in capsys.readouterr().out
    wanted = {
        each["partition"]: each["replicas"]
        for each in json.loads(file.read_text())["partitions"]
        if each["topic"] == "balanced"
    }
    eventually("all is placed", lambda: all(placed(cluster, "balanced")[each] == row for each, row in wanted.items()))
    assert {broker for row in placed(cluster, "balanced") for broker in row} == set(BROKERS)
    eventually(
        "preferred replicas lead",
        lambda: all(row.leader_id == row.replica_nodes[0] for row in cluster.partitions("balanced").values()),
    )
    with ClientOptions(cluster.bootstrap, {}).cluster() as asked:
        assert not run_marks.found(asked).topics
        assert not run_marks.rates(asked)


def test_replicas_move_between_directories(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create("lies", [1])
    (here,) = [folder for folder in cluster.log_dirs(1) if (folder / "lies-0").is_dir()]
    (there,) = set(cluster.log_dirs(1)) - {here}
    row = {"topic": "lies", "partition": 0, "replicas": [1], "now": [1], "log_dirs": [str(there)]}
    with Wire(cluster.address(1)) as wire:
        cluster_id = wire.metadata().cluster_id
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "coverage": 1, "partitions": [row]}))
    words = ["balance", "run", str(file), "--throttle-directories", "50000000", "-b", cluster.bootstrap]
    assert main(words) == 0
    assert capsys.readouterr().out == "1 partitions are as planned, 1 replicas in their directories; 0 are left.\n"
    eventually("it lies there", lambda: (there / "lies-0").is_dir() and not (here / "lies-0").is_dir())


def test_directories_come_before_moves_between_brokers(cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, "mixed")
    (here,) = [folder for folder in cluster.log_dirs(1) if (folder / "mixed-0").is_dir()]
    (there,) = set(cluster.log_dirs(1)) - {here}
    with Wire(cluster.address(1)) as wire:
        cluster_id = wire.metadata().cluster_id
    rows = [
        {"topic": "mixed", "partition": 0, "replicas": [1, 2], "now": [1, 2], "log_dirs": [str(there), "any"]},
        {"topic": "mixed", "partition": 1, "replicas": [3, 2], "now": [1, 2]},
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "coverage": 1, "partitions": rows}))
    words = ["balance", "run", str(file), "--throttle-directories", "1000", "-b", cluster.bootstrap]
    moved = ReplicaName("mixed", 0, 1)
    process = subprocess.Popen(command(*words), env=environment(), stdout=subprocess.PIPE, text=True)
    with ClientOptions(cluster.bootstrap, {}).cluster() as asked:
        eventually("the directory is copied", lambda: replicas_on_disk.places(asked, [moved])[moved].future)
        assert not reassignments.ongoing(asked)
        assert placed(cluster, "mixed")[1] == [1, 2]
        run_marks.set_rates(asked, None, 10**9)
        out, _ = process.communicate(timeout=60)
    assert out == "2 partitions are as planned, 1 replicas in their directories; 0 are left.\n"
    eventually("the other has moved", lambda: placed(cluster, "mixed")[1] == [3, 2])
    assert (there / "mixed-0").is_dir()


def test_a_run_that_was_killed_is_called_back(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, "killed")
    with Wire(cluster.address(1)) as wire:
        cluster_id = wire.metadata().cluster_id
    rows = [{"topic": "killed", "partition": each, "replicas": [3, 2], "now": [1, 2]} for each in range(PARTITIONS)]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "cluster_id": cluster_id, "coverage": 1, "partitions": rows}))
    words = ["balance", "run", str(file), "--throttle", "1000", "-b", cluster.bootstrap]
    process = subprocess.Popen(command(*words), env=environment())
    with ClientOptions(cluster.bootstrap, {}).cluster() as asked:
        eventually("a throttle is set", lambda: len(run_marks.rates(asked)) == 2 and reassignments.ongoing(asked))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(run_marks.rates(asked)) == 2
        assert main(["balance", "cancel", "-b", cluster.bootstrap]) == 0
        assert " partitions were called back.\n" in capsys.readouterr().out
        eventually("the throttle is gone", lambda: not run_marks.rates(asked) and not run_marks.found(asked).topics)
        assert not reassignments.ongoing(asked)
    eventually("all is as before", lambda: placed(cluster, "killed") == [[1, 2]] * PARTITIONS)
