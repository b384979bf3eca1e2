"""`pykbroker balance` on a cluster of four nodes: a plan, its file, and what `reassign execute` makes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.cli.main import main
from pykbroker.testing import Cluster
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.node.wire import Wire, batch

pytestmark = pytest.mark.slow
PARTITIONS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four brokers, of which the first two have everything."""
    with Cluster(nodes=4) as cluster:
        for name in ("moved", "excluded"):
            assignments = [
                CreatableReplicaAssignment(partition_index=number, broker_ids=[1, 2]) for number in range(PARTITIONS)
            ]
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
            with Wire(cluster.address(1)) as wire:
                (made,) = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
                assert made.error_code == ErrorCode.NONE
        cluster.wait_until_in_sync("moved", "excluded")
        with Wire(cluster.address(1)) as wire:
            for number in range(PARTITIONS):
                assert wire.produce("moved", batch(b"x" * 1000), partition=number).error_code == ErrorCode.NONE
        yield cluster


def placed(cluster: Cluster, topic: str) -> list[list[int]]:
    with Wire(cluster.address(1)) as wire:
        return [list(row.replica_nodes) for row in wire.metadata(topic).topics[0].partitions]


def test_a_plan_is_made_and_carried_out(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, at = tmp_path / "plan.json", ["-b", cluster.bootstrap_servers]
    words = ["balance", "plan", "--window", "0.1", "--exclude", "excluded", "--file", str(file), "-o", "json", *at]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    planned = json.loads(file.read_text())
    assert said["unmet"] == []
    assert {each["topic"] for each in planned["partitions"]} == {"moved"}
    spread = {each["resource"]: (each["now"], each["planned"]) for each in said["spread"]}
    assert spread["disk"][0] == 1.0
    assert spread["disk"][1] < 0.2
    # Nothing has moved yet.
    assert placed(cluster, "moved") == [[1, 2]] * PARTITIONS
    assert main(["reassign", "execute", str(file), "--wait", *at]) == 0
    capsys.readouterr()
    found = Counter(broker for replicas in placed(cluster, "moved") for broker in replicas)
    assert set(found) == {1, 2, 3, 4}
    assert max(found.values()) <= 15
    assert placed(cluster, "excluded") == [[1, 2]] * PARTITIONS
    assert main(["balance", "plan", "--window", "0.1", *at]) == 0
    table = capsys.readouterr().out
    assert "RESOURCE" in table
    assert "replicas move" in table


def test_what_cannot_be_planned_is_one_line(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--window", "0.1", "-b", cluster.bootstrap_servers]
    assert main(["balance", "plan", "--leaving", "9", *at]) == 1
    assert capsys.readouterr().err == "pykbroker: broker 9 is not in the cluster\n"
    limits = tmp_path / "limits.toml"
    limits.write_text("[default]\ndisks = 1\n")
    assert main(["balance", "plan", "--capacities", str(limits), *at]) == 1
    assert "[default] disks is no resource" in capsys.readouterr().err
    limits.write_text("[default]\ndisk = 1\n")
    assert main(["balance", "plan", "--capacities", str(limits), *at]) == 1
    assert "not met: capacity of DISK: above its capacity" in capsys.readouterr().err
